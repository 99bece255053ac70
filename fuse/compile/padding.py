"""How the calls of a graph are made at a bucket's size: padding is neutral where it is read.

``fuse.compile.buckets`` proves that this is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuse.compile.symbols import Symbol, dim_of, ends_of, shape_of, tensors_of
from fuse.trace.functional import overload_name


class Padded:
    """How each call of a graph is made at a bucket's size."""

    def __init__(self, module: torch.fx.GraphModule, symbol: Symbol) -> None:
        self.symbol = symbol
        self.masked: dict[torch.fx.Node, Callable[..., Any]] = {}
        for node in module.graph.nodes:
            make = _MASKED.get(overload_name(node.target)) if _is_operator(node) else None
            values = [node.meta.get("val"), *tensors_of(node)]
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
    shape = shape_of(like)
    for dim in {dim_of(one, like) for one in dims}:
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
    at = dim_of(dim, node)
    more = symbol.extra(shape_of(given[0])[at])
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
    start, _ = ends_of(node)
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
