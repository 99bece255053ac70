"""What Dynamo and AOTAutograd ask about a device before they compile for it."""

from __future__ import annotations

import pkgutil
from typing import Any

import torch
from torch._dynamo import device_interface, trace_rules
from torch._dynamo.variables.optimizer import OptimizerVariable

import fuse
from fuse.trace import meta, without_dynamo
from fuse.trace.functional import find_overload


class Interface(device_interface.DeviceInterface):
    """The device as Dynamo sees it: ``torch.tpu`` under the names of its interface."""

    device = torch.tpu.device  # type: ignore[attr-defined]
    Event = torch.tpu.Event  # type: ignore[attr-defined]
    Stream = torch.tpu.Stream  # type: ignore[attr-defined]

    class Worker:
        """What Inductor's compile workers ask; there are none here."""

        @staticmethod
        def current_device() -> int:
            """The current device's index."""
            return int(torch.tpu.current_device())  # type: ignore[attr-defined]

    current_device = staticmethod(torch.tpu.current_device)  # type: ignore[attr-defined]
    set_device = staticmethod(torch.tpu.set_device)  # type: ignore[attr-defined]
    device_count = staticmethod(torch.tpu.device_count)  # type: ignore[attr-defined]
    is_available = staticmethod(torch.tpu.is_available)  # type: ignore[attr-defined]
    stream = staticmethod(torch.tpu.stream)  # type: ignore[attr-defined]
    current_stream = staticmethod(torch.tpu.current_stream)  # type: ignore[attr-defined]
    set_stream = staticmethod(torch.tpu.set_stream)  # type: ignore[attr-defined]
    synchronize = staticmethod(torch.tpu.synchronize)  # type: ignore[attr-defined]
    exchange_device = staticmethod(torch.tpu._exchange_device)  # type: ignore[attr-defined]
    maybe_exchange_device = staticmethod(
        torch.tpu._maybe_exchange_device  # type: ignore[attr-defined]
    )

    @staticmethod
    def get_compute_capability(device: object = None) -> str:
        """None that means anything."""
        return ""

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        """Whether bfloat16 works: yes."""
        return True

    @classmethod
    def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
        """Every dtype that the device has."""
        return True


def _count_steps_on_the_device() -> None:
    """Let a compiled optimizer keep its step counts where its parameters are, as PyTorch does for
    CUDA: on the host, each count is a call there for every operation on it."""
    original: Any = OptimizerVariable._set_capturable

    def set_capturable(self: Any, tx: Any) -> None:
        for group in self.value.param_groups:
            unused = [p.device.type == "tpu" and p not in self.value.state for p in group["params"]]
            if "capturable" in group and unused and all(unused):
                group["capturable"] = True
        original(self, tx)

    OptimizerVariable._set_capturable = set_capturable  # type: ignore[method-assign]


def _infer_as_the_device() -> None:
    """Have fake tensors infer by the device's own inference where that covers more than PyTorch's:
    tables of Python come before what is registered with the dispatcher."""
    for name, function in meta.replaced().items():
        overload = find_overload(name)
        if torch._C.DispatchKey.Meta in overload.py_kernels:
            overload.py_kernels[torch._C.DispatchKey.Meta] = function
            overload._dispatch_cache.clear()


def register() -> None:
    """Make Dynamo ask ``Interface``, and leave this package's frames alone.

    Not those of kernels and integrations, which are a few lines of Python around an operator.
    """
    for part in pkgutil.iter_modules(fuse.__path__):
        if part.name not in ("kernels", "integrations"):
            trace_rules.add(f"fuse.{part.name}")
    without_dynamo.let_in()
    _count_steps_on_the_device()
    _infer_as_the_device()
    # Its table is filled lazily, over what is there already: so have it filled first.
    device_interface.get_interface_for_device("cpu")
    device_interface.register_interface_for_device("tpu", Interface)
    for index in range(torch.tpu.device_count()):  # type: ignore[attr-defined]
        device_interface.register_interface_for_device(f"tpu:{index}", Interface)
