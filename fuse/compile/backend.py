"""The Dynamo backend named ``"tpu"``, which PyTorch finds by its entry point.

AOTAutograd makes the graph functional and splits it into forward and backward; each part
becomes a ``Graph``, which is recorded as one call. There is no second compiler: what is recorded
goes the way of all recorded operations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

from fuse.compile import artifacts, interface
from fuse.compile.flex_attention import written_out
from fuse.compile.graph import Kind
from fuse.compile.partition import partition
from fuse.compile.saved import SavedGraph
from fuse.device.inductor import touches_device

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
    artifacts.note()
    with _stored_whole():
        compiled: Callable[..., Any] = aot_autograd(
            fw_compiler=_compiler(Kind.FORWARD),
            bw_compiler=_compiler(Kind.BACKWARD),
            inference_compiler=_compiler(Kind.INFERENCE),
            partition_fn=partition,
            decompositions={},
            keep_inference_input_mutations=True,
        )(module, inputs)
    return compiled


def _stored_whole() -> contextlib.AbstractContextManager[Any]:
    """Lets AOTAutograd's cache, where it is on, store forward and backward graph in one entry.

    The other form of its entries names what Inductor's cache has. Both graphs are then made at
    once, for an entry is written when a function is compiled.
    """
    settings: Any = torch._functorch.config
    if not settings.enable_autograd_cache:
        return contextlib.nullcontext()
    whole: contextlib.AbstractContextManager[Any] = settings.patch(
        bundled_autograd_cache=True, force_non_lazy_backward_lowering=True
    )
    return whole


def _compiler(kind: Kind) -> SerializableAOTDispatchCompiler:
    def compiler(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> SavedGraph:
        return SavedGraph(written_out(module), kind)

    return SerializableAOTDispatchCompiler(SavedGraph, compiler)
