"""``torch.compile`` by Inductor: ours for graphs on the device, Inductor for all others.

Inductor is PyTorch's default, which libraries also ask for by name, and cannot compile for this
device. Its entry is replaced when PyTorch is imported, which loads nothing: the graph decides when
it is there.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

_compile = torch.compile
_Inductor: Any = torch._TorchCompileInductorWrapper
_call = _Inductor.__call__

_used: deque[bool] = deque(maxlen=1)
"""Whether this process has called ``torch.compile``."""


def device_started() -> None:
    """Have our backend tell Dynamo of the device before it traces, if this process compiles."""
    if _used and "fuse.compile.backend" not in sys.modules:  # else it has, or is about to
        _ours()


def _ours() -> Callable[..., Any]:
    # Imported here: torch.compile has loaded Dynamo by now, and `import torch` must not.
    from torch._dynamo.backends.registry import lookup_backend  # noqa: PLC0415

    return lookup_backend("tpu")


@functools.wraps(_compile)
def _noting_its_use(model: Any = None, **options: Any) -> Any:
    if model is None:
        return lambda later: torch.compile(later, **options)
    _used.append(True)
    if torch.get_device_module("tpu").is_initialized():
        device_started()
    return _compile(model, **options)


def _choose(self: Any, module: Any, inputs: Sequence[Any], **options: Any) -> Any:
    if touches_device(module, inputs):
        return _ours()(module, inputs)
    return _call(self, module, inputs, **options)


def touches_device(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether any tensor of a graph is on the device."""
    found = [*inputs]
    for node in module.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        found += torch.utils._pytree.tree_leaves(value)
    return any(isinstance(one, torch.Tensor) and one.device.type == "tpu" for one in found)


def stand_before() -> None:
    """Look at every graph that goes to Inductor, from here on."""
    torch.compile = _noting_its_use
    _Inductor.__call__ = _choose
