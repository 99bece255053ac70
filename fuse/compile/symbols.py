"""The symbolic sizes of a graph, and which of its tensors grow with one."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols

Shape = tuple[Any, ...]


def symbols_of(module: torch.fx.GraphModule) -> dict[Any, tuple[int, int | None, int]]:
    """The symbols of a graph's inputs, sympy's, and where each one's value is found.

    That is the number of an input and one of its dimensions, ``None`` for an integer, and how
    much larger than the symbol it is there. The ragged size of a nested tensor is no size of these.
    """
    found: dict[Any, tuple[int, int | None, int]] = {}
    given = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    for number, value in enumerate(given):
        sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
        for dim, size in sizes:
            if not isinstance(size, torch.SymInt) or size.node.is_nested_int():
                continue
            for symbol in free_symbols(size):
                more = Symbol(symbol).extra(size)
                if more is not None:
                    found.setdefault(symbol, (number, dim, more))
    return found


class Symbol:
    """The symbol that is padded; the others of a graph are as good as constants."""

    def __init__(self, symbol: Any) -> None:
        self.symbol = symbol

    def grows(self, size: object) -> bool:
        """Whether a size depends on it."""
        return isinstance(size, torch.SymInt) and self.decides(size)

    def decides(self, value: object) -> bool:
        """Whether a number or a truth value depends on it."""
        numbers = (torch.SymInt, torch.SymFloat, torch.SymBool)
        return isinstance(value, numbers) and self.symbol in free_symbols(value)

    def extra(self, size: Any) -> int | None:
        """``c`` of a size that is the symbol plus ``c``, else ``None``."""
        if not self.grows(size):
            return None
        rest = size.node.expr - self.symbol
        return int(rest) if rest.is_Integer else None

    def growing(self, value: object) -> tuple[int, ...]:
        """The dimensions of a tensor that depend on it."""
        if not isinstance(value, torch.Tensor):
            return ()
        return tuple(dim for dim, size in enumerate(value.shape) if self.grows(size))

    def along(self, node: torch.fx.Node, dims: Any) -> bool:
        """Whether one of these dimensions of a call's first argument does."""
        value = node.args[0]
        return any(self.grows(shape_of(value)[dim_of(dim, value)]) for dim in dims)

    def is_number_in(self, node: torch.fx.Node) -> bool:
        """Whether a call takes it where its schema has a number, not a size."""
        for index, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
            given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            if isinstance(given, torch.fx.Node) and self.decides(given.meta.get("val")):
                return True
        return False


def shape_of(argument: Any) -> Shape:
    """The sizes of a call's argument, symbols among them."""
    return tuple(argument.meta["val"].shape)


def dim_of(dim: int, value: Any) -> int:
    """A dimension of it, counted from its first."""
    rank = len(shape_of(value))
    return dim % rank if rank else 0


def tensors_of(node: torch.fx.Node) -> list[torch.Tensor]:
    """The tensors that a call reads."""
    found = [one.meta.get("val") for one in node.all_input_nodes]
    return [one for value in found for one in tensors_in(value)]


def tensors_in(value: object) -> list[torch.Tensor]:
    """The tensors among a call's results."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return [one for one in leaves if isinstance(one, torch.Tensor)]


def ends_of(node: torch.fx.Node) -> tuple[Any, Any]:
    """Where an ``arange`` starts and ends."""
    return (0, node.args[0]) if len(node.args) == 1 else (node.args[0], node.args[1])
