"""Operands that are taken for their shape alone: what they become, and what a plan keeps then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from fuse.plan.unread import without_unread
from fuse.trace.node import Node, Operand, Output, TensorArg
from fuse.trace.spec import Layout, View, contiguous_strides
from tests.device.helpers import DEVICE

GRAD, SELF, TARGET, TOTAL, RESULT = range(5)
SHAPES = {GRAD: (), SELF: (6, 5), TARGET: (6,), TOTAL: (), RESULT: (6, 5)}


def loss_backward(grad: str = "float32", of: str = "float32") -> Node:
    dtypes = {GRAD: grad, SELF: of, TARGET: "int64", TOTAL: of, RESULT: of}
    layouts = {value: Layout(dtypes[value], shape) for value, shape in SHAPES.items()}
    views = {
        value: View(one.dtype, one.shape, contiguous_strides(one.shape))
        for value, one in layouts.items()
    }
    operands = [Operand(at, views[at], layouts[at], at, fresh=True) for at in range(RESULT)]
    return Node(
        op="nll_loss_backward",
        target="nll_loss_backward",
        args=(TensorArg(GRAD), TensorArg(SELF), TensorArg(TARGET), None, 1, -100, TensorArg(TOTAL)),
        operands=tuple(operands),
        outputs=(Output(RESULT, views[RESULT], layouts[RESULT]),),
        writes=(),
        slots=(0,),
    )


def test_an_unread_operand_is_a_number_of_another_at_its_sizes() -> None:
    node = loss_backward()
    (found,) = without_unread([node])
    assert [one.value for one in found.operands] == [GRAD, GRAD, TARGET, TOTAL]
    seen = found.operands[SELF]
    assert (seen.view.shape, seen.view.strides, seen.fresh) == ((6, 5), (0, 0), False)
    assert seen.layout == node.operands[GRAD].layout


def test_another_one_of_its_dtype_is_taken_and_else_it_stays() -> None:
    (found,) = without_unread([loss_backward(grad="float64")])
    assert found.operands[SELF].value == TOTAL
    other = loss_backward(of="bfloat16", grad="float32")
    (kept,) = without_unread(
        [replace(other, operands=(*other.operands[:TOTAL], other.operands[TARGET]))]
    )
    assert kept.operands[SELF].value == SELF


def test_what_lies_at_an_offset_that_varies_stays() -> None:
    node = replace(loss_backward(), dynamic=((SELF, 0),))
    assert without_unread([node]) == (node,)
    node = replace(loss_backward(), dynamic=((GRAD, 0), (TOTAL, 1)))
    assert without_unread([node]) == (node,)


def steps(device: str) -> Iterator[float]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(40, 16, generator=generator).to(device).requires_grad_()
    x = torch.randn(64, 16, generator=generator).to(device)
    target = torch.randint(0, 40, (64,), generator=generator)
    target[3] = -100
    target = target.to(device)
    while True:
        weight.grad = None
        loss = F.cross_entropy(x @ weight.T, target)
        loss.backward()
        yield loss.item()
        with torch.no_grad():
            weight -= 0.1 * weight.grad  # type: ignore[operator]


def test_training_is_as_on_the_cpu() -> None:
    here, there = steps("cpu"), steps(DEVICE)
    for _ in range(100):
        assert next(there) == pytest.approx(next(here), rel=1e-5)
