"""Operations that a fused region (``fused_regions.py``) can hold, and what they are there.

Such an operation treats the samples of a batch, or the rows of a matrix, independently of each
other: every operand and result is either split along its first dimension, which is the outermost
of all its memory, or the same for all samples. Everything is in 32-bit floats.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fuse.trace.bind import named
from fuse.trace.node import Node, NumberArg, Operand, Output, TensorArg, Write
from fuse.trace.spec import View

Result = Output | Write


class Kernel(enum.IntEnum):
    """Kernels of a region, in the order of ``cpu/csrc/fused_regions.cpp``."""

    PRODUCT = 0
    BIASED_PRODUCT = 1
    LAYER_NORM = 2
    GELU = 3
    RELU = 4
    SILU = 5
    ADD = 6
    MULTIPLY = 7
    ATTENTION = 8


class Kind(enum.IntEnum):
    """How samples share a value; as the native core numbers it."""

    NONE = 0
    WHOLE = 1
    SPLIT = 2


@dataclass(frozen=True, slots=True)
class Part:
    """A value seen through a view: the same part of every sample's, or all of it for all."""

    value: int
    view: View
    kind: Kind


@dataclass(frozen=True, slots=True)
class RegionOp:
    """One node of a fused region.

    Attributes:
        kernel: what computes it.
        operands: what the kernel reads; ``None`` for what the node does not have.
        results: what it makes, in its order.
        numbers: what else it takes.
        work: multiplications of its products.
    """

    kernel: Kernel
    operands: tuple[Part | None, ...]
    results: tuple[Part, ...]
    numbers: tuple[float, ...] = ()
    work: int = 0

    def sizes(self) -> list[int]:
        """First dimensions of all that is split: samples are a divisor of each."""
        parts = (*self.operands, *self.results)
        return [part.view.shape[0] for part in parts if part and part.kind is Kind.SPLIT]

    def whole(self) -> set[int]:
        """Values that every sample needs all of."""
        return {part.value for part in self.operands if part and part.kind is Kind.WHOLE}


def region_op(node: Node) -> RegionOp | None:
    """The node as an operation of a fused region, if it can be one."""
    make = _MAKERS.get(node.target)
    if make is None or node.dynamic or node.random is not None:
        return None
    return make(_Call(node, named(node)))


@dataclass(frozen=True, slots=True)
class _Call:
    """A node with its arguments by name."""

    node: Node
    named: dict[str, Any]

    def operand(self, name: str) -> Operand | None:
        """The tensor of that name; ``None`` where it is none, or not one of 32-bit floats."""
        value = self.named[name]
        found = self.node.operands[value.index] if isinstance(value, TensorArg) else None
        return found if found and _is_float(found) and found.initialised else None

    def result(self, place: int) -> Result | None:
        """A result that is new, or all that a buffer holds from then on."""
        slot = self.node.slots[place]
        if slot is None:
            return None
        made: tuple[Result, ...] = (*self.node.outputs, *self.node.writes)
        found = made[slot]
        whole = isinstance(found, Output) or found.view.covers(found.layout)
        return found if whole and _is_float(found) else None

    def number(self, name: str) -> float | None:
        """A number that does not vary; ``None`` for what is no number."""
        value = self.named[name]
        value = value.number if isinstance(value, NumberArg) else value
        return float(value) if isinstance(value, int | float) else None


def _is_float(one: Operand | Result) -> bool:
    return one.view.dtype == one.layout.dtype == "float32"


def _whole(one: Operand | None) -> Part | None:
    """All of a value, as a matrix or row with its numbers in one piece one way or the other."""
    if one is None or 0 in one.view.shape or 1 not in one.view.strides or 0 in one.view.strides:
        return None
    within = one.view.last < one.layout.numel  # not so where its storage has grown since
    return Part(one.value, one.view, Kind.WHOLE) if within else None


def _split(one: Operand | Result | None, view: View | None = None) -> Part | None:
    """What is split along its first dimension, if that is the outermost of all its memory."""
    if one is None:
        return None
    view = view or one.view
    shape, strides = view.shape, view.strides
    if 0 in shape or len(shape) < 2 or shape[0] * strides[0] != one.layout.numel:
        return None
    return Part(one.value, view, Kind.SPLIT) if view.last < one.layout.numel else None


def _rows(one: Operand | Result | None, width: int) -> Part | None:
    """All of a value as rows of ``width`` numbers."""
    if one is None or width < 1 or one.view.numel % width or not one.view.covers(one.layout):
        return None
    return _split(one, View("float32", (one.view.numel // width, width), (width, 1)))


def _all(parts: list[Part | None]) -> list[Part] | None:
    """The parts, if all of them are there."""
    found = [part for part in parts if part is not None]
    return found if len(found) == len(parts) else None


def _product(call: _Call) -> RegionOp | None:
    return _linear(call, Kernel.PRODUCT, "self", [])


def _biased_product(call: _Call) -> RegionOp | None:
    bias = call.operand("self")
    if call.number("beta") != 1 or call.number("alpha") != 1:
        return None
    if bias is None or len(bias.view.shape) != 1:
        return None
    return _linear(call, Kernel.BIASED_PRODUCT, "mat1", [_whole(bias)])


def _linear(call: _Call, kernel: Kernel, left: str, first: list[Part | None]) -> RegionOp | None:
    """A linear layer: PyTorch's library is no faster than XLA where the right operand is not
    transposed (``rules/matmul.py``)."""
    rows, weight = _split(call.operand(left)), _whole(call.operand("mat2"))
    found = _all([*first, rows, weight, _split(call.result(0))])
    if found is None or rows is None or weight is None:
        return None
    if rows.view.strides[1] != 1 or weight.view.strides[0] != 1:
        return None
    work = rows.view.numel * weight.view.shape[1]
    return RegionOp(kernel, tuple(found[:-1]), (found[-1],), work=work)


def _layer_norm(call: _Call) -> RegionOp | None:
    width, eps = math.prod(call.named["normalized_shape"]), call.number("eps")
    scales: list[Part | None] = []
    for name in ("weight", "bias"):
        one = call.operand(name)
        if call.named[name] is not None and (one is None or not one.view.covers(one.layout)):
            return None
        flat = None if one is None else View("float32", (one.view.numel,), (1,))
        scales.append(None if one is None or flat is None else Part(one.value, flat, Kind.WHOLE))
    x, out = _rows(call.operand("input"), width), _rows(call.result(0), width)
    found = _all([x, out, _rows(call.result(1), 1), _rows(call.result(2), 1)])
    if found is None or eps is None:
        return None
    return RegionOp(Kernel.LAYER_NORM, (found[0], *scales), tuple(found[1:]), (eps,))


def _gelu(call: _Call) -> RegionOp | None:
    tanh = call.named["approximate"] == "tanh"
    return _pointwise(call, Kernel.GELU, ("self",), (float(tanh),))


def _relu(call: _Call) -> RegionOp | None:
    return _pointwise(call, Kernel.RELU, ("self",))


def _silu(call: _Call) -> RegionOp | None:
    return _pointwise(call, Kernel.SILU, ("self",))


def _add(call: _Call) -> RegionOp | None:
    return _pointwise(call, Kernel.ADD, ("self", "other")) if call.number("alpha") == 1 else None


def _multiply(call: _Call) -> RegionOp | None:
    return _pointwise(call, Kernel.MULTIPLY, ("self", "other"))


def _pointwise(
    call: _Call, kernel: Kernel, names: tuple[str, ...], numbers: tuple[float, ...] = ()
) -> RegionOp | None:
    """An elementwise operation on tensors of one shape."""
    ones = [*(call.operand(name) for name in names), call.result(0)]
    shapes = {one.view.shape for one in ones if one is not None}
    if len(shapes) != 1 or len(shape := shapes.pop()) < 2:
        return None
    found = _all([_rows(one, shape[-1]) for one in ones])
    return None if found is None else RegionOp(kernel, tuple(found[:-1]), (found[-1],), numbers)


def _attention(call: _Call) -> RegionOp | None:
    """Attention without dropout and bias, every query head with its own key and value."""
    names = ("query", "key", "value")
    ones = [*(call.operand(name) for name in names), call.result(0), call.result(1)]
    found = _all([_split(one) for one in ones])
    if found is None or call.named["attn_bias"] is not None or call.number("dropout_p") != 0:
        return None
    query, key, value = (part.view.shape for part in found[:3])
    alike = len(query) == 4 and key == value and (key[:2], key[3]) == (query[:2], query[3])
    if not alike or any(part.view.strides[-1] != 1 for part in found):
        return None
    given = call.named["scale"] is not None
    scale = call.number("scale") if given else 1 / math.sqrt(query[3])
    if scale is None:
        return None
    numbers = (float(call.named["is_causal"]), scale)
    work = 2 * math.prod(query) * key[2]
    return RegionOp(Kernel.ATTENTION, tuple(found[:3]), tuple(found[3:]), numbers, work)


_MAKERS: Final[dict[str, Callable[[_Call], RegionOp | None]]] = {
    "mm": _product,
    "addmm": _biased_product,
    "native_layer_norm": _layer_norm,
    "gelu": _gelu,
    "relu": _relu,
    "silu": _silu,
    "add.Tensor": _add,
    "mul.Tensor": _multiply,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
}
