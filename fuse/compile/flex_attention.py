"""FlexAttention's calls in a graph, written out as the operators that compute them.

They are higher-order operators: each run of one is Python, ``vmap`` over the modifications of
scores and masks, which no capture can replay. What is traced here are their definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta, set_current_meta

from fuse.compile.flex_definitions import attend, attend_backward
from fuse.compile.symbols import symbols_of

DEFINITIONS: Final[dict[Any, Callable[..., Any]]] = {
    flex_attention: attend,
    flex_attention_backward: attend_backward,
}
"""What computes a call, by the operator."""


def _zeros_and_scatter(
    shape: list[int], indices: list[torch.Tensor], values: torch.Tensor
) -> torch.Tensor:
    zeros = torch.zeros(shape, device=values.device, dtype=values.dtype)
    return zeros.index_put(tuple(indices), values, accumulate=True)


_JOINT: Final = 8
"""The place of a score modification's gradient, a graph, among the arguments of a backward pass."""
_CAPTURED: Final = 12
"""The place of what a score's modification captures."""


def _asking_for_gradients(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with those captured tensors requiring a gradient that the modification's
    gradient has one for: the definition goes by that, and a graph's values do not say it."""
    captured = arguments[_CAPTURED]
    made = arguments[_JOINT].graph.output_node().args[0]
    asking = [
        one.detach().requires_grad_() if gradient is not None else one
        for one, gradient in zip(captured, made[len(made) - len(captured) :], strict=True)
    ]
    return (*arguments[:_CAPTURED], tuple(asking), *arguments[_CAPTURED + 1 :])


class _Definitions(torch.fx.Interpreter):
    """Runs a graph while it is traced; what is traced knows the line that it comes from."""

    def run_node(self, n: torch.fx.Node) -> Any:
        definition = DEFINITIONS.get(n.target) if n.op == "call_function" else None
        with set_current_meta(n):
            if definition is None:
                return super().run_node(n)
            arguments, options = self.fetch_args_kwargs_from_env(n)
            if n.target is flex_attention_backward:
                arguments = _asking_for_gradients(arguments)
            with torch.no_grad():
                return definition(*arguments, **options)


def written_out(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with FlexAttention's calls written out; itself where it has none.

    Args:
        module: a functional graph, whose nodes have their values' descriptions. One with symbolic
            sizes is returned as it is.
    """
    if not any(node.target in DEFINITIONS for node in module.graph.nodes) or symbols_of(module):
        return module
    inputs = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    mode = next(one.fake_mode for one in inputs if isinstance(one, FakeTensor))
    table = {torch.ops.flex_lib.zeros_and_scatter.default: _zeros_and_scatter}
    # Constants of the graph are no fake tensors.
    allowed, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        with mode, preserve_node_meta():
            return make_fx(_Definitions(module).run, decomposition_table=table)(*inputs)
    finally:
        mode.allow_non_fake_inputs = allowed
