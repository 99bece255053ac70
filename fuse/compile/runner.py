"""Makes a graph's calls, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuse.compile.lines import user_line_of
from fuse.trace.source import in_place_of_frames

Order = tuple[tuple[int, ...], tuple[int, ...]]
"""Sizes and strides."""


class Runner:
    """Makes a graph's calls; each knows the user's line that it comes from.

    By code that PyTorch writes of the graph, once: its interpreter takes 25 us a call more.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self._module = module
        self._forward: Callable[..., tuple[Any, ...]] | None = None

    def all(self, inputs: list[Any]) -> list[Any]:
        """The results of the graph, as a list, which alone holds them.

        Autograd copies a gradient that somebody else holds: a program other than that of the later,
        replayed calls.
        """
        if self._forward is None:
            self._forward = self._written().forward
        return list(self._forward(*inputs))

    def function(self, node: torch.fx.Node) -> Callable[..., Any]:
        """What a call of the graph calls."""
        assert callable(node.target)
        return node.target

    def _written(self) -> torch.fx.GraphModule:
        graph, known = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
        for node in self._module.graph.nodes:
            known[node] = graph.node_copy(node, known.__getitem__)
            if node.op == "call_function":
                known[node].target = _known_call(
                    self.function(node), user_line_of(node), inferred_orders(node)
                )
        return torch.fx.GraphModule(self._module, graph)


def _known_call(
    function: Callable[..., Any], line: str, orders: list[Order | None]
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with in_place_of_frames(line):
            return laid(function(*args, **kwargs), orders)

    return call


def inferred_orders(node: torch.fx.Node) -> list[Order | None]:
    """The order of memory of each of a call's results that the graph was traced with.

    ``None`` of what is no tensor or has symbolic sizes: to compare them would fix them. Empty where
    a result shares memory with an argument, and lies as that does.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or any(
        one.alias_info is not None for one in node.target._schema.returns
    ):
        return []
    inferred = node.meta.get("val")
    return [
        _order(one) for one in (inferred if isinstance(inferred, (list, tuple)) else [inferred])
    ]


def _order(inferred: object) -> Order | None:
    if not isinstance(inferred, torch.Tensor):
        return None
    order = tuple(inferred.shape), inferred.stride()
    return order if all(type(one) is int for part in order for one in part) else None


def laid(result: Any, orders: list[Order | None]) -> Any:
    """What a call made, in those orders of memory.

    Views that follow were chosen for them. PyTorch infers for some operators another order than its
    CPU kernels have, whose order results have here.
    """
    if type(result) not in (list, tuple):
        return _laid(result, orders[0]) if len(orders) == 1 else result
    if len(result) != len(orders):
        return result
    return type(result)(map(_laid, result, orders))


def _laid(result: object, order: Order | None) -> Any:
    if order is None or not isinstance(result, torch.Tensor):
        return result
    if result.stride() == order[1] or result.shape != order[0]:
        return result
    pairs = zip(result.shape, result.stride(), order[1], strict=True)
    if all(extent < 2 or own == other for extent, own, other in pairs):
        return result
    made = torch.empty_strided(*order, dtype=result.dtype, device=result.device)
    return made.copy_(result)
