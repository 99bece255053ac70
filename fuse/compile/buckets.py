"""Graphs with a symbolic size, run at the size of a bucket: one executable for many sizes.

The inputs are lengthened to the bucket's size, the graph runs at that size, and its results are
shortened. What lies behind the true size is padding, of whichever value. ``refusal`` proves that
no result depends on it, operation by operation: most treat positions on their own; where one
reads along the symbolic dimension, ``Padded`` gives it its neutral element there. Without a
proof a graph runs at its true sizes, one executable each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols

from fuse.trace.functional import overload_name

SMALLEST = 64
"""The least bucket; the others are its doubles. 512 lengths take four."""

Shape = tuple[Any, ...]


def bucket(size: int) -> int:
    """The size that a graph runs at for a symbol of value ``size``."""
    found = SMALLEST
    while found < size:
        found *= 2
    return found


def symbols_of(module: torch.fx.GraphModule) -> dict[Any, tuple[int, int | None, int]]:
    """The symbols of a graph's inputs, sympy's, and where each one's value is found.

    That is the number of an input and one of its dimensions, ``None`` for an integer, and how
    much larger than the symbol it is there.
    """
    found: dict[Any, tuple[int, int | None, int]] = {}
    given = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    for number, value in enumerate(given):
        sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
        for dim, size in sizes:
            for symbol in free_symbols(size) if isinstance(size, torch.SymInt) else ():
                more = Symbol(symbol).extra(size)
                if more is not None:
                    found.setdefault(symbol, (number, dim, more))
    return found


class Symbol:
    """The symbol that is padded; the others of a graph are as good as constants."""

    def __init__(self, symbol: Any) -> None:
        self.symbol = symbol

    def grows(self, size: Any) -> bool:
        """Whether a size depends on it."""
        return isinstance(size, torch.SymInt) and self.symbol in free_symbols(size)

    def extra(self, size: Any) -> int | None:
        """``c`` of a size that is the symbol plus ``c``, else ``None``."""
        if not self.grows(size):
            return None
        rest = size.node.expr - self.symbol
        return int(rest) if rest.is_Integer else None

    def growing(self, value: Any) -> tuple[int, ...]:
        """The dimensions of a tensor that depend on it."""
        if not isinstance(value, torch.Tensor):
            return ()
        return tuple(dim for dim, size in enumerate(value.shape) if self.grows(size))

    def along(self, node: torch.fx.Node, dims: Any) -> bool:
        """Whether one of these dimensions of a call's first argument does."""
        value = node.args[0]
        return any(self.grows(_shape(value)[_dim(dim, value)]) for dim in dims)

    def is_number_in(self, node: torch.fx.Node) -> bool:
        """Whether a call takes it where its schema has a number, not a size."""
        for index, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
            given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            if isinstance(given, torch.fx.Node) and self.grows(given.meta.get("val")):
                return True
        return False


class Refused(Exception):
    """Padding might change a result; the text says at which operation."""


Rule = Callable[[Symbol, torch.fx.Node], bool]


# ---- the proof ----------------------------------------------------------------------------


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
        tensors = [one for one in (*_tensors(node), *_results(value)) if symbol.growing(one)]
        name = overload_name(node.target)
        sizes = [size for one in tensors for size in one.shape if symbol.grows(size)]
        if any(symbol.extra(size) is None for size in sizes):
            raise Refused(f"aten::{name} has a size that is not the symbol plus a constant")
        if symbol.is_number_in(node) and name not in _FROM_SIZES:
            raise Refused(f"aten::{name} computes with the symbol's value")
        if tensors and not _holds(symbol, name, node):
            raise Refused(f"aten::{name} may mix padding with values")


def _check_result(symbol: Symbol, node: torch.fx.Node) -> None:
    value = node.meta.get("val")
    if symbol.growing(value) and (node.op == "placeholder" or len(symbol.growing(value)) > 1):
        raise Refused("a result is an input itself, or grows in two dimensions")
    if isinstance(value, torch.SymInt) and symbol.grows(value) and symbol.extra(value) is None:
        raise Refused("a result is a number that is not the symbol plus a constant")


def _tensors(node: torch.fx.Node) -> list[torch.Tensor]:
    found = [one.meta.get("val") for one in node.all_input_nodes]
    return [one for value in found for one in _results(value)]


def _results(value: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [one for one in leaves if isinstance(one, torch.Tensor)]


_FROM_SIZES = frozenset({"arange.start_step", "arange.start", "arange", "slice.Tensor"})
_BY_POSITION = {
    *("permute", "transpose.int", "t", "unsqueeze", "squeeze.dim", "squeeze.dims", "squeeze"),
    *("alias", "detach", "clone", "_to_copy", "expand", "lift_fresh_copy", "copy"),
    *("full", "zeros", "ones", "empty.memory_format", "full_like", "zeros_like", "ones_like"),
    *("new_zeros", "new_ones", "new_full", "tril", "triu"),
}
"""What treats every position on its own, or by its distance from the start."""


def _shape(argument: Any) -> Shape:
    return tuple(argument.meta["val"].shape)


def _dim(dim: int, value: Any) -> int:
    rank = len(_shape(value))
    return dim % rank if rank else 0


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
    before, after = _shape(node.args[0]), tuple(node.meta["val"].shape)
    return _ahead(symbol, before) == _ahead(symbol, after)


def _ahead(symbol: Symbol, shape: Shape) -> list[tuple[Any, str]]:
    found: list[tuple[Any, str]] = []
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
    open_end = end is None or (isinstance(end, int) and end >= 0)
    from_start = start is None or (isinstance(start, int) and start >= 0)
    return from_start and open_end and isinstance(step, int) and step == 1


def _concatenates(symbol: Symbol, node: torch.fx.Node) -> bool:
    parts: Any = node.args[0]
    dim = _dim(node.args[1] if len(node.args) > 1 else 0, node)  # type: ignore[arg-type]
    return not any(symbol.grows(_shape(part)[dim]) for part in parts[1:])


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
    start, end = _ends(node)
    return start == 0 or not symbol.growing(node.meta["val"])


def _ends(node: torch.fx.Node) -> tuple[Any, Any]:
    return (0, node.args[0]) if len(node.args) == 1 else (node.args[0], node.args[1])


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


# ---- the run ------------------------------------------------------------------------------


class Padded:
    """How each call of a graph is made at a bucket's size."""

    def __init__(self, module: torch.fx.GraphModule, symbol: Symbol) -> None:
        self.symbol = symbol
        self.masked: dict[torch.fx.Node, Callable[..., Any]] = {}
        for node in module.graph.nodes:
            make = _MASKED.get(overload_name(node.target)) if _is_operator(node) else None
            values = [node.meta.get("val"), *_tensors(node)]
            if make is not None and (any(map(symbol.growing, values)) or symbol.is_number_in(node)):
                self.masked[node] = make

    def call(self, node: torch.fx.Node, size: torch.Tensor, args: Any, kwargs: Any) -> Any:
        """The call, of which only positions before ``size`` plus a constant are values."""
        make = self.masked.get(node)
        if make is None:
            target: Any = node.target
            return target(*args, **kwargs)
        return make(self.symbol, node, size, *args, **kwargs)


def _is_operator(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)


def _filled(
    symbol: Symbol, value: torch.Tensor, like: Any, dims: Any, size: torch.Tensor, fill: float
) -> torch.Tensor:
    """``value`` with ``fill`` behind the true size along those of ``dims`` that grow."""
    shape = _shape(like)
    for dim in {_dim(one, like) for one in dims}:
        more = symbol.extra(shape[dim])
        if more is None:
            continue
        positions = torch.arange(value.shape[dim], device=value.device)
        inside = positions < size + more
        inside = inside.view([-1 if at == dim else 1 for at in range(value.dim())])
        value = torch.where(inside, value, _scalar(fill, value))
    return value


def _scalar(number: float, like: torch.Tensor) -> torch.Tensor:
    return torch.full((), number, dtype=like.dtype, device=like.device)


def _product(
    symbol: Symbol, node: torch.fx.Node, size: torch.Tensor, *args: Any, **kwargs: Any
) -> Any:
    first = len(args) - 2  # addmm's sum comes first
    left = _filled(symbol, args[first], node.args[first], [-1], size, 0)
    right = _filled(symbol, args[first + 1], node.args[first + 1], [-2], size, 0)
    target: Any = node.target
    return target(*args[:first], left, right, **kwargs)


def _reduction(fill: float) -> Callable[..., Any]:
    def call(
        symbol: Symbol,
        node: torch.fx.Node,
        size: torch.Tensor,
        value: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        dims = args[0] if args else None
        every = dims is None or dims == []
        dims = range(value.dim()) if every else dims if isinstance(dims, list) else [dims]
        number = _least(value) if fill < 0 else _most(value) if fill > 0 else 0
        target: Any = node.target
        return target(_filled(symbol, value, node.args[0], dims, size, number), *args, **kwargs)

    return call


def _least(value: torch.Tensor) -> float:
    if value.dtype is torch.bool:
        return 0
    return float("-inf") if value.dtype.is_floating_point else torch.iinfo(value.dtype).min


def _most(value: torch.Tensor) -> float:
    if value.dtype is torch.bool:
        return 1
    return float("inf") if value.dtype.is_floating_point else torch.iinfo(value.dtype).max


def _joined(
    symbol: Symbol, node: torch.fx.Node, size: torch.Tensor, parts: Any, dim: int = 0
) -> torch.Tensor:
    """What follows a part that grows comes right behind its values, over its padding."""
    given: Any = node.args[0]
    at = _dim(dim, node)
    more = symbol.extra(_shape(given[0])[at])
    if more is None:
        joined: torch.Tensor = torch.ops.aten.cat.default(parts, at)
        return joined
    rest = torch.ops.aten.cat.default(parts[1:], at) if len(parts) > 2 else parts[1]
    result = torch.ops.aten.cat.default([parts[0], torch.zeros_like(rest)], at)
    places = torch.arange(rest.shape[at], device=rest.device) + (size + more)
    return torch.index_copy(result, at, places, rest.to(result.dtype))


def _looked_up(
    symbol: Symbol, node: torch.fx.Node, size: torch.Tensor, weight: Any, indices: Any, *rest: Any
) -> Any:
    given: Any = node.args[1]
    indices = _filled(symbol, indices, given, range(indices.dim()), size, 0)
    return torch.ops.aten.embedding.default(weight, indices, *rest)


def _counted(
    symbol: Symbol, node: torch.fx.Node, size: torch.Tensor, *args: Any, **kwargs: Any
) -> Any:
    start, _ = _ends(node)
    more = symbol.extra(start.meta.get("val")) if isinstance(start, torch.fx.Node) else None
    target: Any = node.target
    if more is None:
        return target(*args, **kwargs)
    found = torch.ops.aten.arange.start_step(0, args[1] - args[0], *args[2:], **kwargs)
    return found + (size + more).to(found.dtype)


_MASKED: dict[str, Callable[..., Any]] = {
    "mm": _product,
    "bmm": _product,
    "addmm": _product,
    "_softmax": _reduction(-1),
    "_log_softmax": _reduction(-1),
    "sum": _reduction(0),
    "sum.dim_IntList": _reduction(0),
    "amax": _reduction(-1),
    "amin": _reduction(1),
    "cat": _joined,
    "embedding": _looked_up,
    "arange.start": _counted,
    "arange.start_step": _counted,
}


def lengthened(tensor: torch.Tensor, dim: int, size: int, room: int) -> torch.Tensor:
    """``tensor`` with ``size`` positions along ``dim``; those behind its own are anything.

    A tensor that is the beginning of a larger one (a result of an earlier call) is
    lengthened in place; any other is copied into memory for ``size + room`` positions.
    """
    shape = [*tensor.shape[:dim], size, *tensor.shape[dim + 1 :]]
    strides, own = tensor.stride(), tensor.untyped_storage().nbytes() // tensor.element_size()
    step = strides[dim]
    outer = strides[dim - 1] if dim else own
    whole = [*tensor.shape[:dim], outer // step if step else 0, *tensor.shape[dim + 1 :]]
    dense = list(torch.empty(whole, device="meta").stride()) == list(strides)
    if tensor.storage_offset() == 0 and dense and whole[dim] == size + room:
        return tensor.as_strided(shape, strides, 0)
    wide = [*shape[:dim], size + room, *shape[dim + 1 :]]
    copy = tensor.new_zeros(wide)
    copy.narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
    return copy.narrow(dim, 0, size)
