"""The table of operators names operators and arguments that PyTorch has."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fuse.trace.functional import base_name
from fuse.trace.operators import OPERATORS, PLAIN, for_the_core, operator, with_a


def schemas(name: str) -> list[torch._C.FunctionSchema]:
    """Of all overloads that a record is for, in-place ones too."""
    found = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")]
    return [s for s in found if base_name(s.name) == name]


@pytest.mark.parametrize("name", OPERATORS)
def test_a_record_is_of_an_operator_and_its_arguments(name: str) -> None:
    known = schemas(name)
    assert known
    one = OPERATORS[name]
    assert one != PLAIN
    arguments = {argument.name for schema in known for argument in schema.arguments}
    assert arguments >= {*one.numbers, *one.converted, *one.widened}
    assert all(at < len(known[0].arguments) for at in one.writes)


def test_records_are_found_by_overloads_too() -> None:
    assert operator("aten::native_batch_norm.out").writes == (3, 4)
    assert operator("index_put_").apart == "but first"
    assert operator("add.Tensor") is OPERATORS["add"]
    assert operator("relu") is PLAIN
    assert {"mm", "dot"} < with_a("product") and "mm" not in with_a("draws")


def test_the_core_is_told_what_it_has_to_know_alone() -> None:
    told = {name: rest for name, *rest in for_the_core()}
    assert told["native_batch_norm"] == [(3, 4), "", (), ()]
    assert told["randperm"] == [(), "permutation", (), ()]
    assert told["randint"] == [(), "elements", ("low", "high"), ()]
    assert told["index_put"] == [(), "", (), ("indexes",)]
    assert "cat" not in told


def test_every_field_is_of_some_operator() -> None:
    for field in dataclasses.fields(PLAIN):
        if field.name != "unwrapped":  # which depends on PyTorch's version
            assert with_a(field.name), field.name
