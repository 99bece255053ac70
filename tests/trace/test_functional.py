"""Which overload computes an in-place or ``out=`` one."""

from __future__ import annotations

import pytest
import torch

from fuse.trace.functional import (
    find_overload,
    functional_name,
    is_out,
    is_written,
    overload_name,
    schema_of,
)


def nothing(name: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("name", "functional"),
    [
        ("add.Tensor", "add.Tensor"),
        ("add_.Tensor", "add.Tensor"),
        ("add.out", "add.Tensor"),
        ("relu_", "relu"),
        ("sum.IntList_out", "sum.dim_IntList"),
        ("mean.out", "mean.dim"),
        ("cat.out", "cat"),
        ("max.dim_max", "max.dim"),
        ("sort.values_stable", "sort.stable"),
        ("_foreach_add_.Scalar", "_foreach_add.Scalar"),
        ("arange.start_out", "arange.start_step"),
        ("eye.m_out", "eye.m"),
        ("randperm.out", "randperm.generator"),
        ("randperm.generator_out", "randperm.generator"),
        ("nll_loss_forward.output", "nll_loss_forward"),
        ("__and__.Tensor", "__and__.Tensor"),
        ("native_batch_norm", "native_batch_norm"),
    ],
)
def test_the_functional_overload(name: str, functional: str):
    assert functional_name(name, nothing) == functional


def test_an_overload_with_a_rule_is_its_own():
    assert functional_name("add_.Tensor", {"add_.Tensor"}.__contains__) == "add_.Tensor"


def test_names_and_overloads_are_inverse():
    for name in ("add.Tensor", "relu", "sum.dim_IntList", "_foreach_add.List", "max.dim_max"):
        assert overload_name(find_overload(name)) == name
    assert find_overload("no_such_operator") is None
    assert find_overload("add.no_such_overload") is None


def test_operators_of_other_libraries_keep_their_namespace():
    with torch.library._scoped_library("fuse_names", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        assert overload_name(find_overload("fuse_names::twice")) == "fuse_names::twice"


def test_what_is_written():
    arguments = {argument.name: argument for argument in schema_of("add.out").arguments}
    assert is_out(arguments["out"]) and is_written(arguments["out"])
    assert not is_written(arguments["self"])
    written = schema_of("add_.Tensor").arguments[0]
    assert is_written(written) and not is_out(written)


def test_every_out_overload_with_a_functional_twin_has_its_results():
    """The twin of an ``out=`` overload returns as many tensors as there are ``out`` arguments."""
    checked = 0
    for full in torch._C._dispatch_get_all_op_names():
        name = full.removeprefix("aten::")
        overload = find_overload(name) if full.startswith("aten::") else None
        if overload is None or not any(is_out(a) for a in overload._schema.arguments):
            continue
        target = functional_name(name, nothing)
        if target == name or name.startswith(("_fused_", "_amp_")):
            continue  # these return what they change, too
        outs = [argument for argument in overload._schema.arguments if is_out(argument)]
        assert len(schema_of(target).returns) == len(outs), (name, target)
        checked += 1
    assert checked > 500
