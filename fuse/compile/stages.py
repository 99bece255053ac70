"""Graphs that compute on the host as well: what runs there, and what on the device, in turn.

A compiled optimizer keeps its step counts on the host, and programs move tensors between the two.
Such a graph becomes stages; those on the device are graphs of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.passes.split_module import split_module
from torch.utils._python_dispatch import _disable_current_modes

from fuse.compile.bucketed import AnySize
from fuse.compile.graph import Graph, Kind
from fuse.compile.sized import Call, OneSizeEach
from fuse.compile.symbols import symbols_of


def staged(module: torch.fx.GraphModule, kind: Kind) -> Call:
    """A boxed callable for a functional graph: one ``Graph`` where all of it is the device's."""
    levels = _levels(module)
    if not any(level % 2 for level in levels.values()):
        return _boxed(_of_any_size(module, kind))
    return _boxed(_Staged(module, levels, kind))


def _of_any_size(module: torch.fx.GraphModule, kind: Kind) -> Call:
    if not symbols_of(module):
        return Graph(module, kind)
    constants = any(node.op == "get_attr" for node in module.graph.nodes)
    reason = (
        f"it is a {kind.value} pass"
        if kind is not Kind.INFERENCE
        else "it holds constants"
        if constants
        else None
    )
    if reason is None:
        return AnySize(module)
    return OneSizeEach(Graph(module, kind), module, reason)


def _boxed(call: Call) -> Call:
    """The same as a function: Dynamo keeps the attributes of these alone."""

    def run(arguments: list[Any]) -> list[Any]:
        return call(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class _Staged:
    """Runs the stages of a graph in order."""

    def __init__(
        self, module: torch.fx.GraphModule, levels: dict[torch.fx.Node, int], kind: Kind
    ) -> None:
        self.split = split_module(
            module,
            None,  # type: ignore[arg-type]
            lambda node: levels.get(node, 0),
            keep_original_order=False,
        )
        for name, part in list(self.split.named_children()):
            kind_of, _, number = name.rpartition("_")  # others are the graphs of loops and branches
            if kind_of == "submod" and int(number) % 2 == 0:
                setattr(self.split, name, _Part(Graph(_returning_lists(part), kind), part))

    def __call__(self, arguments: list[Any]) -> list[Any]:
        with torch.no_grad(), _disable_current_modes():  # as ``Graph`` does
            results = self.split(*arguments)
        arguments.clear()
        return list(results)


class _Part(torch.nn.Module):
    """A stage on the device as a module: one result is a tensor, several are a tuple."""

    def __init__(self, graph: Graph, part: Any) -> None:
        super().__init__()
        self.graph, self.single = graph, part.single_result

    def forward(self, *arguments: Any) -> Any:
        """Run it."""
        results = self.graph(list(arguments))
        return results[0] if self.single else tuple(results)


def _returning_lists(part: Any) -> torch.fx.GraphModule:
    """The stage with its results in a list, as a ``Graph`` has them."""
    output = next(node for node in part.graph.nodes if node.op == "output")
    part.single_result = not isinstance(output.args[0], (tuple, list))
    if part.single_result:
        output.args = ([output.args[0]],)
        part.recompile()
    assert isinstance(part, torch.fx.GraphModule)
    return part


def _levels(module: torch.fx.GraphModule) -> dict[torch.fx.Node, int]:
    """The stage of every call: even ones are the device's, odd ones the host's."""
    levels: dict[torch.fx.Node, int] = {}
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        before = [levels[one] for one in node.all_input_nodes if one in levels]
        written = node.args[0] if node.target is torch.ops.aten.copy_.default else None
        if isinstance(written, torch.fx.Node):
            # After every other use of what it overwrites.
            before += [levels[user] for user in written.users if user in levels]
        level = max(before, default=0)
        levels[node] = level + (level % 2 != _on_host(node))
    return levels


def _tensors(value: object) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [one for one in leaves if isinstance(one, torch.Tensor)]


def _on_host(node: torch.fx.Node) -> bool:
    """Whether a call is the host's: it makes a tensor there, moves one, or reads a number."""
    if node.target is torch.ops.aten._local_scalar_dense.default:
        return True
    if any(tensor.device.type != "tpu" for tensor in _tensors(node.meta.get("val"))):
        return True
    for one in node.all_input_nodes:
        for tensor in _tensors(one.meta.get("val")):
            if tensor.device.type != "tpu" and (tensor.dim() > 0 or tensor.is_complex()):
                return True
    return False
