"""accelerate: ``Accelerator()`` takes the device, alone and under a launcher.

accelerate's own variable, ``ACCELERATE_TORCH_DEVICE``, outweighs ``Accelerator(cpu=True)`` and does
not make ranks, so it cannot be the default. What decides is three methods of ``PartialState``; each
answers as before, and this device is taken only where accelerate would have taken the CPU without
having been asked to.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from fuse.errors import describe

BACKEND = "cpu:gloo,tpu:tpu_dist"
"""The process group under a launcher: objects and CPU tensors go by gloo."""


def extend(module: Any) -> None:
    """Make ``accelerate.state`` know the device.

    ``PartialState.device`` is ``tpu``, and ``distributed_type`` is ``MULTI_GPU`` for several ranks:
    accelerate's list of types is closed, and that is the one it drives by
    ``DistributedDataParallel`` and FSDP.

    Args:
        module: ``accelerate.state``.
    """
    state = module.PartialState
    state.default_device = property(_default_device(state.default_device.fget))
    state._prepare_backend = _prepare_backend(state._prepare_backend, module.DistributedType)
    state.set_device = _set_device(state.set_device, module.DistributedType)


def _default_device(original: Any) -> Any:
    @functools.wraps(original)
    def default_device(self: Any) -> torch.device:
        found: torch.device = original(self)
        return torch.device("tpu") if found.type == "cpu" else found

    return default_device


def _prepare_backend(original: Any, kinds: Any) -> Any:
    @functools.wraps(original)
    def prepare(
        self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
    ) -> tuple[str | None, Any]:
        chosen, kind = original(self, cpu, sagemaker_dp, backend)
        if cpu or kind != kinds.NO or "LOCAL_RANK" not in os.environ:
            return chosen, kind
        if backend is not None and "tpu" not in backend:
            raise ValueError(
                describe(
                    f"The process group's backend {backend!r} does not serve the device tpu, and "
                    "every rank would train alone",
                    hint="name no backend (ddp_backend=None), or stay on the CPU: "
                    "Accelerator(cpu=True), TrainingArguments(use_cpu=True)",
                )
            )
        # accelerate compares what it gets back with what the program named.
        return backend or BACKEND, kinds.MULTI_GPU

    return prepare


def _set_device(original: Any, kinds: Any) -> Any:
    @functools.wraps(original)
    def set_device(self: Any) -> None:
        ours = "tpu" in str(self.backend) and self.distributed_type == kinds.MULTI_GPU
        if ours:
            # A process has one device, number 0 whatever its rank; accelerate would give DDP the
            # local rank as the device's number, but for this variable of its own.
            os.environ.setdefault("ACCELERATE_BYPASS_DEVICE_MAP", "true")
            self.device = self.device or torch.device("tpu", 0)
        elif getattr(self, "_cpu", False) and self.device is not None:
            # ACCELERATE_TORCH_DEVICE was there as well: the program's own word is the nearer one.
            self.device = torch.device("cpu")
        else:
            original(self)

    return set_device
