"""Every pointwise rule of several tensors takes tensors of different ranks, of every dtype, and
indices and what they index may be numbers as well as rows."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.backends import numpy_harness, rule_harness
from tests.backends.rule_harness import find

SHAPES = ((), (3,), (2, 1), (2, 1, 3))
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
NUMBERS = ("number", "int", "float")


def operands(name: str, dtype: torch.dtype, turn: int) -> list[Any] | None:
    """Tensors of different ranks, and ones for numbers; None if it is not of several tensors."""
    given: list[Any] = []
    shapes = [*SHAPES[turn:], *SHAPES[:turn]]
    for argument in find(name)._schema.arguments:
        if argument.kwarg_only or argument.has_default_value():
            break
        if str(argument.type) == "Tensor":
            shape = torch.Size(shapes.pop(0))
            given.append(torch.arange(1, shape.numel() + 1).reshape(shape).to(dtype))
        elif str(argument.type) in NUMBERS:
            given.append(1)
        else:
            return None
    return given if sum(isinstance(one, torch.Tensor) for one in given) > 1 else None


def pointwise(rules: Any) -> list[str]:
    known = (name for name in rules if name not in rule_harness.GONE and exists(name))
    of = (name for name in known if torch.Tag.pointwise in find(name).tags)
    return sorted(name for name in of if operands(name, torch.float32, 0))


def exists(name: str) -> bool:
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return packet is not None and (overload or "default") in packet.overloads()


@pytest.mark.slow
@pytest.mark.parametrize("harness", (rule_harness, numpy_harness), ids=("xla", "numpy"))
def test_operands_of_mixed_ranks(harness: Any) -> None:
    names = pointwise(harness.RULES)
    assert len(names) > 60
    checked = set()
    for name in names:
        for dtype in DTYPES:
            for turn in range(len(SHAPES)):
                given = operands(name, dtype, turn)
                assert given is not None
                try:
                    find(name)(*given)
                except RuntimeError:  # PyTorch's CPU has none of this dtype
                    continue
                harness.check(name, *given)
                checked.add(name)
    assert set(names) - checked <= {"div.Tensor_mode"}  # its rounding mode has no default


NUMBERS_AND_ROWS = ((), (1,), (3,))
AT_INDICES: dict[str, Any] = {
    "gather": lambda x, dim, i, source: (x, dim, i),
    "index_add": lambda x, dim, i, source: (x, dim, i, source),
    "index_copy": lambda x, dim, i, source: (x, dim, i, source),
    "index_fill.int_Scalar": lambda x, dim, i, source: (x, dim, i, 3),
    "index_fill.int_Tensor": lambda x, dim, i, source: (x, dim, i, source.flatten()[0]),
    "index_reduce": lambda x, dim, i, source: (x, dim, i, source, "prod"),
    "index_select": lambda x, dim, i, source: (x, dim, i),
    "put": lambda x, dim, i, source: (x, i, source),
    "scatter.src": lambda x, dim, i, source: (x, dim, i, source),
    "scatter.value": lambda x, dim, i, source: (x, dim, i, 3),
    "scatter.reduce": lambda x, dim, i, source: (x, dim, i, source),
    "scatter_add": lambda x, dim, i, source: (x, dim, i, source),
    "scatter_reduce.two": lambda x, dim, i, source: (x, dim, i, source, "amax"),
    "take": lambda x, dim, i, source: (x, i),
}


@pytest.mark.filterwarnings("ignore:index_reduce|The reduce argument")
@pytest.mark.parametrize("harness", (rule_harness, numpy_harness), ids=("xla", "numpy"))
@pytest.mark.parametrize("name", AT_INDICES)
def test_numbers_and_rows_at_indices(name: str, harness: Any) -> None:
    options = {"reduce": "multiply"} if name == "scatter.reduce" else {}
    tried = 0
    for dim, *shapes in itertools.product((0, -1), *[NUMBERS_AND_ROWS] * 3):
        x, index, source = (
            torch.full(shape, number) for shape, number in zip(shapes, (2.5, 0, 4.0), strict=True)
        )
        given = AT_INDICES[name](x, dim, index, source)
        try:
            find(name)(*given, **options)
        except (RuntimeError, IndexError):  # PyTorch's CPU refuses these ranks together
            continue
        harness.check(name, *given, **options)
        tried += 1
    assert tried
