"""Graphs with a symbolic size, run at the size of a bucket: the proof that it changes nothing.

The inputs are lengthened to the bucket's size, the graph runs at that size, and its results are
shortened. What lies behind the true size is padding, of whichever value. ``refusal`` proves that
no result depends on it, operation by operation: most treat positions on their own; where one
reads along the symbolic dimension, ``fuse.compile.padding`` gives it its neutral element there.
Without a proof a graph runs at its true sizes, one executable each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuse.compile.symbols import Shape, Symbol, dim_of, ends_of, shape_of, tensors_in, tensors_of
from fuse.trace.functional import overload_name, qualified_name

SMALLEST = 64
"""The least bucket; the others are its doubles. 512 lengths take four."""


def bucket(size: int) -> int:
    """The size that a graph runs at for a symbol of value ``size``."""
    found = SMALLEST
    while found < size:
        found *= 2
    return found


class Refused(Exception):
    """Padding might change a result; the text says at which operation."""


Rule = Callable[[Symbol, torch.fx.Node], bool]


def refusal(module: torch.fx.GraphModule, symbol: Symbol) -> str | None:
    """Why a graph cannot run at a bucket's size of a symbol, ``None`` where it can."""
    try:
        for node in module.graph.nodes:
            _check(symbol, node)
    except Refused as error:
        return str(error)
    return None


def _check(symbol: Symbol, node: torch.fx.Node) -> None:
    value = node.meta.get("val")
    if node.op == "placeholder":
        if len(symbol.growing(value)) > 1:
            raise Refused("an input grows in two dimensions")
    elif node.op == "output":
        for one in torch.utils._pytree.tree_leaves(node.args[0]):
            if isinstance(one, torch.fx.Node):
                _check_result(symbol, one)
    elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
        tensors = [one for one in (*tensors_of(node), *tensors_in(value)) if symbol.growing(one)]
        name = overload_name(node.target)
        sizes = [size for one in tensors for size in one.shape if symbol.grows(size)]
        if any(symbol.extra(size) is None for size in sizes):
            raise Refused(
                f"{qualified_name(name)} has a size that is not the symbol plus a constant"
            )
        if symbol.is_number_in(node) and name not in _FROM_SIZES:
            raise Refused(f"{qualified_name(name)} computes with the symbol's value")
        if tensors and not _holds(symbol, name, node):
            raise Refused(f"{qualified_name(name)} may mix padding with values")


def _check_result(symbol: Symbol, node: torch.fx.Node) -> None:
    value = node.meta.get("val")
    if symbol.growing(value) and (node.op == "placeholder" or len(symbol.growing(value)) > 1):
        raise Refused("a result is an input itself, or grows in two dimensions")
    if symbol.decides(value) and symbol.extra(value) is None:
        raise Refused("a result is a number that is not the symbol plus a constant")


_FROM_SIZES = frozenset({"arange.start_step", "arange.start", "arange", "slice.Tensor"})
_BY_POSITION = {
    *("permute", "transpose.int", "t", "unsqueeze", "squeeze.dim", "squeeze.dims", "squeeze"),
    *("alias", "detach", "clone", "_to_copy", "expand", "lift_fresh_copy", "copy"),
    *("full", "zeros", "ones", "empty.memory_format", "full_like", "zeros_like", "ones_like"),
    *("new_zeros", "new_ones", "new_full", "tril", "triu"),
}
"""What treats every position on its own, or by its distance from the start."""


def _holds(symbol: Symbol, name: str, node: torch.fx.Node) -> bool:
    target: Any = node.target
    if torch.Tag.nondeterministic_seeded in target.tags:
        return False
    if torch.Tag.pointwise in target.tags or name in _BY_POSITION:
        return not name.partition(".")[0].endswith("_")
    rule = _RULES.get(name)
    return rule is not None and rule(symbol, node)


def _keeps_positions(symbol: Symbol, node: torch.fx.Node) -> bool:
    """A view: growing dimensions stay dimensions, after as many elements as before."""
    before, after = shape_of(node.args[0]), tuple(node.meta["val"].shape)
    return _ahead(symbol, before) == _ahead(symbol, after)


def _ahead(symbol: Symbol, shape: Shape) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    product: Any = 1
    for size in shape:
        if symbol.grows(size):
            found.append((str(product), str(size)))
            product = 1
        else:
            product = product * size
    return [*found, (str(product), "")]


def _slices(symbol: Symbol, node: torch.fx.Node) -> bool:
    if not symbol.along(node, [node.args[1] if len(node.args) > 1 else 0]):
        return True
    start = node.args[2] if len(node.args) > 2 else 0
    end = node.args[3] if len(node.args) > 3 else None
    step = node.args[4] if len(node.args) > 4 else 1
    known_end = end is None or isinstance(end, int)  # from the end too: padding lies behind it
    from_start = start is None or (isinstance(start, int) and start >= 0)
    return from_start and known_end and isinstance(step, int) and step == 1


def _concatenates(symbol: Symbol, node: torch.fx.Node) -> bool:
    parts: Any = node.args[0]
    dim = dim_of(node.args[1] if len(node.args) > 1 else 0, node)  # type: ignore[arg-type]
    return not any(symbol.grows(shape_of(part)[dim]) for part in parts[1:])


def _multiplies(symbol: Symbol, node: torch.fx.Node) -> bool:
    return True  # contracted dimensions are masked: see Padded


def _reduces(symbol: Symbol, node: torch.fx.Node) -> bool:
    return True  # likewise


def _not_along(position: int, default: Any) -> Rule:
    def rule(symbol: Symbol, node: torch.fx.Node) -> bool:
        dims = node.args[position] if len(node.args) > position else default
        return not symbol.along(node, dims if isinstance(dims, (list, tuple)) else [dims])

    return rule


def _means(symbol: Symbol, node: torch.fx.Node) -> bool:
    dims: Any = node.args[1] if len(node.args) > 1 else None
    return bool(dims) and not symbol.along(node, dims)


def _normalises(symbol: Symbol, node: torch.fx.Node) -> bool:
    last = len(node.args[1])  # type: ignore[arg-type]
    return not symbol.along(node, range(-last, 0))


def _selects(symbol: Symbol, node: torch.fx.Node) -> bool:
    index = node.args[2]
    return not symbol.along(node, [node.args[1]]) or (isinstance(index, int) and index == 0)


def _embeds(symbol: Symbol, node: torch.fx.Node) -> bool:
    return not symbol.growing(node.args[0].meta["val"])  # type: ignore[union-attr]


def _counts_up(symbol: Symbol, node: torch.fx.Node) -> bool:
    start, end = ends_of(node)
    return start == 0 or not symbol.growing(node.meta["val"])


_RULES: dict[str, Rule] = {
    "view": _keeps_positions,
    "_unsafe_view": _keeps_positions,
    "reshape": _keeps_positions,
    "slice.Tensor": _slices,
    "select.int": _selects,
    "cat": _concatenates,
    "mm": _multiplies,
    "bmm": _multiplies,
    "addmm": _multiplies,
    "_softmax": _reduces,
    "_log_softmax": _reduces,
    "sum": _reduces,
    "sum.dim_IntList": _reduces,
    "amax": _reduces,
    "amin": _reduces,
    "mean.dim": _means,
    "native_layer_norm": _normalises,
    "split.Tensor": _not_along(2, 0),
    "split_with_sizes": _not_along(2, 0),
    "unbind.int": _not_along(1, 0),
    "argmax": lambda symbol, node: len(node.args) > 1 and not symbol.along(node, [node.args[1]]),
    "cumsum": lambda symbol, node: True,
    "sym_size.int": lambda symbol, node: True,
    "embedding": _embeds,
    "arange": _counts_up,
    "arange.start": _counts_up,
    "arange.start_step": _counts_up,
}
