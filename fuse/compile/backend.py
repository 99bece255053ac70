"""The Dynamo backend named ``"tpu"``, which PyTorch finds by its entry point.

AOTAutograd makes the graph functional and splits it into forward and backward; each part
becomes a ``Graph``, which is recorded as one call. There is no second compiler: what is recorded
goes the way of all recorded operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from fuse.compile import interface
from fuse.compile.flex_attention import written_out
from fuse.compile.graph import Kind
from fuse.compile.partition import partition
from fuse.compile.stages import staged
from fuse.device.inductor import touches_device
from fuse.errors import UnsupportedError, describe
from fuse.trace.source import user_line

interface.register()


def tpu(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """A callable that computes what Dynamo's graph ``module`` does, on tensors like ``inputs``.

    Args:
        module: the graph that Dynamo captured.
        inputs: its example inputs, fake tensors and symbolic integers.
        mode: taken and without effect: every call is what ``"reduce-overhead"`` asks for.
        options: taken and without effect: they are Inductor's.
    """
    if not touches_device(module, inputs):
        return module.forward
    if getattr(torch._functorch.config, "bundled_autograd_cache", False):
        raise UnsupportedError(
            describe(
                "aot_compile saves what a compiler made, which on the tpu device is made when the "
                "graph is called",
                operator="torch.compile(...).aot_compile",
                source=user_line(),
                hint="torch.compile(...) alone: the cache keeps executables for the next process",
            )
        )
    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=_compiler(Kind.FORWARD),
        bw_compiler=_compiler(Kind.BACKWARD),
        inference_compiler=_compiler(Kind.INFERENCE),
        partition_fn=partition,
        decompositions={},
        keep_inference_input_mutations=True,
    )(module, inputs)
    return compiled


def _compiler(kind: Kind) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
    def compiler(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return staged(written_out(module), kind)

    return compiler
