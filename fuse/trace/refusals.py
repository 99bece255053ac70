"""Calls that PyTorch's shape inference lets pass and its CPU kernels may refuse.

What stands here is sent to the host, whose kernel raises PyTorch's own error at the call,
or runs, counted as a fallback. Only what is known without data is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from fuse.trace.bind import bind, named
from fuse.trace.cpu_probe import probe
from fuse.trace.functional import base_name, find_overload, is_out, schema_of
from fuse.trace.node import Arg, HostArg, Node, NumberArg, Operand, TensorArg
from fuse.trace.operators import operator
from fuse.trace.probe_call import call, read
from fuse.trace.promote import promoted_operands, result_type
from fuse.trace.reach import outside
from fuse.trace.scalar_range import result_view, unfit
from fuse.trace.spec import View

_MOST = 2**63 - 1


def refusal(node: Node) -> str | None:
    """Why the host should decide about a call, or ``None``."""
    if any(isinstance(value, int) and value > _MOST for value in node.args):
        return "a number is past int64"
    if operator(node.target).one_dtype and len({operand.view.dtype for operand in read(node)}) > 1:
        return "its operands differ in dtype"
    check = _CHECKS.get(base_name(node.target))
    if check is not None:
        positional, _ = bind(node)
        reason = check(node, positional)
        if reason is not None:
            return reason
    return (
        unfit(node) or outside(node) or _overlap(node) or probe(node).reason or _converts_out(node)
    )


# ---- memory -------------------------------------------------------------------------------


def _overlap(node: Node) -> str | None:
    """Written memory that is not one place an element, or partly another operand's."""
    for write in node.writes:
        before = node.operands[write.operand]
        targets = {before.view, write.view}  # two where out= is resized: some check before that
        if any(_repeats(view) for view in targets):
            return "elements that it writes share memory"
        others = [o for i, o in enumerate(node.operands) if i != write.operand]
        if any(_overlaps_partly(replace(before, view=v), o) for v in targets for o in others):
            return "what it writes overlaps with an operand"
        if any(_same(before, other) for other in _only_read(node, write.operand)):
            return "it writes what it reads"
    return None


def _only_read(node: Node, written: int) -> list[Operand]:
    """The operands that must not be the one numbered ``written``."""
    apart = operator(node.target).apart
    if apart is None:
        return []
    first = 1 if apart == "but first" else 0
    return [o for i, o in enumerate(node.operands) if i >= first and i != written]


def _dims(view: View) -> list[tuple[int, int]]:
    return list(zip(view.shape, view.strides, strict=True))


def _repeats(view: View) -> bool:
    """Whether elements share memory; where there are none, strides say nothing."""
    return bool(view.numel) and any(size > 1 and step == 0 for size, step in _dims(view))


def _same(one: Operand, other: Operand) -> bool:
    return one.value == other.value and one.view == other.view


def _overlaps_partly(one: Operand, other: Operand) -> bool:
    """PyTorch's test (ATen/MemoryOverlap.cpp): dense blocks alone; the rest is too hard to say."""
    if one.value != other.value or one.view == other.view or one.view.dtype != other.view.dtype:
        return False
    a, b = one.view, other.view
    if not a.numel or not b.numel or not a.is_block or not b.is_block:
        return False
    same = a.offset == b.offset and a.numel == b.numel
    if same:
        return a.strides != b.strides
    return a.offset < b.offset + b.numel and b.offset < a.offset + a.numel


# ---- arguments ----------------------------------------------------------------------------


def _view(node: Node, argument: object) -> View | None:
    return node.operands[argument.index].view if isinstance(argument, TensorArg) else None


def _dtype(node: Node, argument: object) -> str | None:
    """The dtype of a tensor or a number that PyTorch has wrapped into one; of a boolean, too."""
    view = _view(node, argument)
    if view is not None:
        return view.dtype
    if isinstance(argument, bool):
        return "bool"
    return argument.dtype if isinstance(argument, HostArg) else None


def _uniform(node: Node, arguments: list[Arg]) -> str | None:
    ends = [a.number for a in arguments if isinstance(a, NumberArg)]
    return "from exceeds to" if len(ends) == 2 and ends[0] > ends[1] else None


def _random(node: Node, arguments: list[Arg]) -> str | None:
    ends = [a.number for a in arguments if isinstance(a, NumberArg)]
    return "from is not below to" if len(ends) == 2 and ends[0] >= ends[1] else None


def _sum(node: Node, arguments: list[Arg]) -> str | None:
    boolean = named(node).get("alpha") is True
    return "alpha is a boolean" if boolean and result_view(node).dtype != "bool" else None


def _difference(node: Node, arguments: list[Arg]) -> str | None:
    boolean = any(_dtype(node, argument) == "bool" for argument in arguments[:2])
    return "it subtracts booleans" if boolean else _sum(node, arguments)


def _masked_scatter(node: Node, arguments: list[Arg]) -> str | None:
    mask = _view(node, arguments[1])
    return "the mask is not boolean" if mask is not None and mask.dtype != "bool" else None


def _index_add(node: Node, arguments: list[Arg]) -> str | None:
    self, source = _view(node, arguments[0]), _view(node, arguments[3])
    if self is None or source is None or len(self.shape) == len(source.shape):
        return None
    return "self and source differ in rank" if max(len(self.shape), len(source.shape)) > 1 else None


def _slice_scatter(node: Node, arguments: list[Any]) -> str | None:
    # PyTorch's inference takes any dimension where a start and an end are given.
    self, dim = _view(node, arguments[0]), arguments[2] if len(arguments) > 2 else 0
    if self is None or not isinstance(dim, int) or -len(self.shape) <= dim < len(self.shape):
        return None
    return "its dimension is out of range"


def _multinomial(node: Node, arguments: list[Any]) -> str | None:
    weights = _view(node, arguments[0])
    if isinstance(arguments[1], int) and arguments[1] <= 0:
        return "it draws no sample"
    if weights is not None and "float" not in weights.dtype:
        return "the weights are no floating-point numbers"
    again = len(arguments) > 2 and arguments[2]
    if not again and weights is not None and weights.shape and arguments[1] > weights.shape[-1]:
        return "it draws more than there is, without replacement"
    if any(write.view.dtype != "int64" for write in node.writes):
        return "out= is not of dtype int64"
    many = weights is not None and weights.shape and weights.shape[-1] > 1 << 24
    return "more than 2**24 categories" if many else None


def _bucketize(node: Node, arguments: list[Arg]) -> str | None:
    boundaries = _view(node, arguments[1])
    flat = boundaries is None or len(boundaries.shape) == 1
    return None if flat else "the boundaries are not one row"


def _index_put(node: Node, arguments: list[Any]) -> str | None:
    """Not the number that a mask assigns, which is another call before it comes here."""
    target, value = _view(node, arguments[0]), _view(node, arguments[2])
    if target is None:
        return None
    if _dtype(node, arguments[2]) != target.dtype:
        return "source and destination differ in dtype"
    indices = [_view(node, index) for index in arguments[1]]
    if (
        value is not None
        and any(indices)
        and not _expands(value.shape, _indexed(target.shape, indices))
    ):
        return "the values do not fit what is indexed"
    return None


def _indexed(shape: tuple[int, ...], indices: list[View | None]) -> tuple[int, ...]:
    """The shape of what index tensors select: theirs in their place, or in front if apart."""
    places = [at for at, index in enumerate(indices) if index is not None]
    chosen = torch.broadcast_shapes(*(index.shape for index in indices if index is not None))
    rest = [extent for at, extent in enumerate(shape) if at not in places]
    together = places == list(range(places[0], places[0] + len(places)))
    first = places[0] if together else 0
    return (*rest[:first], *chosen, *rest[first:])


def _expands(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(extent in (1, wanted) for extent, wanted in pairs)


def _convolution(node: Node, arguments: list[Any]) -> str | None:
    """Shape inference looks at the result's size alone: a dilation of -1 may give a valid one."""
    stride, padding, dilation, transposed, extra = arguments[3:8]
    if min(stride, default=1) <= 0 or min(dilation, default=1) <= 0:
        return "a stride or a dilation is not positive"
    if min(padding, default=0) < 0 or min(extra, default=0) < 0:
        return "a padding is negative"
    pairs = zip(extra, stride, dilation, strict=False)
    if transposed and any(more >= max(step, apart) for more, step, apart in pairs):
        return "the output padding reaches the next element"
    return None


def _spread(node: Node, arguments: list[Any]) -> str | None:
    """The CPU's kernel writes as many numbers as ``out=`` has into it, whatever its shape."""
    for write in node.writes:
        given = node.operands[write.operand].view
        if given.shape != write.view.shape and given.numel == write.view.numel:
            return "out= has as many elements in another shape, which it keeps"
    return None


# ---- out= of another dtype ----------------------------------------------------------------

STRICT_OVERLOADS = frozenset(["clamp", "clamp_max", "clamp_min"])
"""Pointwise operators that do not, where they take numbers."""


def _converts_out(node: Node) -> str | None:
    """``out=`` of another dtype than the result's: an error, not a conversion, for most kernels."""
    outs = [is_out(argument) for argument in schema_of(node.op).arguments]
    if not any(outs) or not read(node):  # a factory's dtype is that of its out=
        return None
    special = operator(node.target)
    converts = special.converts_out
    if converts is None and node.target not in STRICT_OVERLOADS:
        converts = torch.Tag.pointwise in find_overload(node.op).tags
    if converts:
        return None
    given = [write.view.dtype for write in node.writes]
    promoted = result_type(promoted_operands(node))
    as_promoted = not special.truths and all(dtype == promoted for dtype in given)
    if as_promoted or node.target == node.op:
        return None
    try:
        made = call(node, _on_meta)
    except RuntimeError as error:
        return f"what its result is cannot be inferred: {error}"
    expected = [
        str(t.dtype).removeprefix("torch.")
        for t in ([made] if isinstance(made, torch.Tensor) else made)
        if isinstance(t, torch.Tensor)
    ]
    return "out= has another dtype than the result" if given != expected else None


def _on_meta(operand: Operand) -> torch.Tensor:
    view = operand.view
    dtype = getattr(torch, view.dtype)
    return torch.empty_strided(view.shape, view.strides, dtype=dtype, device="meta")


_CHECKS: dict[str, Callable[[Node, list[Any]], str | None]] = {
    "_index_put_impl": _index_put,
    "_unsafe_index_put": _index_put,
    "add": _sum,
    "arange": _spread,
    "bucketize": _bucketize,
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "index_add": _index_add,
    "index_put": _index_put,
    "linspace": _spread,
    "logspace": _spread,
    "masked_scatter": _masked_scatter,
    "multinomial": _multinomial,
    "range": _spread,
    "rsub": _difference,
    "slice_scatter": _slice_scatter,
    "sub": _difference,
    "random": _random,
    "uniform": _uniform,
}
