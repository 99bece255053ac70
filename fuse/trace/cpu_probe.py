"""The CPU probe: a call's error, or its results' dtypes and strides, as PyTorch's CPU kernel says.

Shape inference lets pass what the kernel refuses, and infers for other devices. The kernel is asked
before the call is first described. What it raises may be about the values and sizes it is given
instead, and is the caller's to hear only if another dtype or number would have passed; of operands
without elements or dimensions there is nothing else that it could be about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import torch

from fuse.bounded import Bounded
from fuse.trace.functional import base_name, schema_of
from fuse.trace.node import Node
from fuse.trace.operators import operator
from fuse.trace.probe_call import Question, in_order_of, is_pointwise, read
from fuse.trace.spec import Layout, View, physical_shape

SMALL = 4096
"""Elements of operands and results up to which a call is asked about with its own shapes."""
MOST_ZEROS = 1 << 20
"""The same where something has no elements, which there is no other way to ask about."""
DIMENSIONS: Final = frozenset({"dim", "dims", "dim0", "dim1", "dim2", "start_dim", "end_dim"})
"""Arguments whose numbers mean the same with fewer elements."""
LAPACK: Final = ("cholesky", "geqrf", "linalg", "lu_", "ormqr", "triangular_solve")
"""How the names of operators begin that PyTorch computes in half precision on no device.

Accelerators know that better than the CPU's kernels else."""
MOST_RESULTS = 16384


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Why the kernel refuses the call, or what it made: outputs by their numbers."""

    reason: str | None = None
    made: tuple[tuple[int, View], ...] = ()


NOTHING = ProbeResult()
_known: Bounded[tuple[Any, ...], ProbeResult] = Bounded(MOST_RESULTS)
"""By the question, some 500 bytes each: a layer's comes back with every layer."""


def probe(node: Node) -> ProbeResult:
    """What the kernel says of a call; nothing of one that it cannot be asked about."""
    # Another library's operator may do more than compute.
    if "::" in node.target or not operator(node.target).probed:
        return NOTHING
    views = [*(operand.view for operand in read(node)), *_results(node)]
    empty = any(not view.numel for view in views)
    large = sum(view.numel for view in views) > (MOST_ZEROS if empty else SMALL)
    if empty and large:
        return NOTHING
    scalar = not is_pointwise(node) and any(not one.view.shape for one in read(node))
    question = Question(node, large)
    key = torch.get_default_dtype(), question.key  # kernels make results of the default dtype too
    return _known.memo(key, lambda: _run(question, empty or scalar))


def with_probed_layout(node: Node) -> Node:
    """The node, its outputs of the dtypes and orders in memory that the kernel makes."""
    outputs = list(node.outputs)
    for number, made in probe(node).made:
        view = _scaled(made, outputs[number].view)
        if view != outputs[number].view:
            layout = Layout(view.dtype, physical_shape(view.shape, view.strides))
            outputs[number] = replace(outputs[number], view=view, layout=layout)
    return replace(node, outputs=tuple(outputs))


def _scaled(made: View, inferred: View) -> View:
    """What the kernel made, perhaps of fewer elements, with the sizes that were inferred."""
    strides = inferred.strides
    if inferred.numel != 1 and len(made.shape) == len(strides) and made.is_block:
        if made.shape == inferred.shape:
            strides = made.strides
        elif _order(made) != _order(inferred):
            strides = in_order_of(made.strides, inferred.shape)
    return View(made.dtype, inferred.shape, strides)


def _order(view: View) -> list[int]:
    """The dimensions, but for those of one element, from the outermost in memory on."""
    dims = [dim for dim, size in enumerate(view.shape) if size > 1]
    return sorted(dims, key=lambda dim: (-view.strides[dim], dim))


def _results(node: Node) -> list[View]:
    return [*(output.view for output in node.outputs), *(write.view for write in node.writes)]


def _say(error: Exception | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"


def _run(question: Question, bare: bool) -> ProbeResult:
    error = question.error()
    if error is None:
        return ProbeResult(made=tuple(_made(question.node, question.made)))
    return ProbeResult(_say(error)) if _is_the_callers(error, question, bare) else NOTHING


def _is_the_callers(error: Exception, question: Question, bare: bool) -> bool:
    """Whether it is not about values or shapes, which are the call's own where it is not large.

    Of ``bare`` ones there is nothing else that it could be about.
    """
    if isinstance(error, NotImplementedError):
        lapack = base_name(question.node.target).lstrip("_").startswith(LAPACK)
        return lapack or not question.is_about_halves()
    if "support" in str(error) or (bare and not question.large):
        return True
    others = question.with_other_dtypes()
    if not question.large:
        others = chain(others, question.with_other_numbers(None))
    elif not question.counts(DIMENSIONS):
        others = chain(others, question.with_other_numbers(DIMENSIONS))
    return any(other is None for other in others)


def _made(node: Node, made: Any) -> Iterator[tuple[int, View]]:
    """The outputs among a kernel's results; none where the call itself says how they lie."""
    if any(argument.name == "memory_format" for argument in schema_of(node.target).arguments):
        return
    results = made if isinstance(made, (list, tuple)) else [made]
    for result, slot in zip(results, node.slots, strict=False):
        if slot is not None and slot < len(node.outputs) and isinstance(result, torch.Tensor):
            dtype = str(result.dtype).removeprefix("torch.")
            yield slot, View(dtype, tuple(result.shape), result.stride())
