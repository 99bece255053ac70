"""Assertions in a compiled graph: what they assert is a result of the graph, checked later."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from fuse.compile.lines import user_line_of
from fuse.device.composites.assertion import ASSERTIONS, DEFAULT, state_of

_ASSERTING = (torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg)


def take_assertions(module: GraphModule) -> bool:
    """Make the state of a graph's assertions its last result, instead of them; whether it has any.

    Only of those on the device: others run on the host, where a graph has stages.
    """
    graph = module.graph
    found = [node for node in graph.nodes if node.target in _ASSERTING and _on_device(node)]
    state: Node | None = None
    for node in found:
        condition, message = (*node.args, DEFAULT)[:2]
        number = ASSERTIONS.number(str(message), user_line_of(node))
        with graph.inserting_before(node):
            made = graph.call_function(state_of, (condition, number))
            if state is not None:
                made = graph.call_function(torch.ops.aten.minimum.default, (state, made))
        graph.erase_node(node)
        state = made
    if state is None:
        return False
    output = graph.output_node()
    output.args = ([*output.args[0], state],)  # type: ignore[misc]
    module.recompile()
    return True


def _on_device(node: Node) -> bool:
    condition = node.args[0]
    assert isinstance(condition, Node)
    kind: str = condition.meta["val"].device.type
    return kind == "tpu"
