"""Lightning: ``Trainer(accelerator="auto")`` and ``Fabric()`` take the device; ``"tpu"`` names it.

The name goes by Lightning's registry of accelerators. For the rest its connector asks a list of
devices in its code, so four of its methods are extended: what ``"auto"`` is, the strategy of one
device, DDP's numbers of devices (with numbers Lightning opens a CUDA stream), and the device of
mixed precision, which would be ``cuda``. This device is taken only where Lightning would have
taken the CPU without having been asked to.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

NAME = "tpu"


def extend(module: Any) -> None:
    """Make a connector know the device: the Trainer's or Fabric's.

    Args:
        module: ``lightning.pytorch.trainer.connectors.accelerator_connector`` or
            ``lightning.fabric.connector``, of either package name.
    """
    connector = getattr(module, "_AcceleratorConnector", None) or module._Connector
    registry = getattr(module, "AcceleratorRegistry", None) or module.ACCELERATOR_REGISTRY
    accelerator = _accelerator(module.Accelerator)
    if not module.XLAAccelerator.is_available():
        registry.register(NAME, accelerator, description="the device tpu", override=True)
    connector._choose_auto_accelerator = staticmethod(
        _choose_auto(connector._choose_auto_accelerator, accelerator)
    )
    connector._choose_strategy = _choose_strategy(
        connector._choose_strategy, accelerator, module.SingleDeviceStrategy
    )
    connector._init_strategy = _init_strategy(connector._init_strategy, accelerator)
    connector._check_and_init_precision = _precision(
        connector._check_and_init_precision, accelerator, module.MixedPrecision
    )


def _accelerator(base: Any) -> Any:
    class TPUAccelerator(base):  # type: ignore[misc]
        """Lightning's view of the device: one a process, as many processes as were started."""

        def setup_device(self, device: torch.device) -> None:
            """Make ``device`` the current one."""
            torch.get_device_module("tpu").set_device(device)

        def teardown(self) -> None:
            """Nothing is held."""

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            """Bytes that are allocated now and were at most."""
            memory: dict[str, Any] = torch.get_device_module("tpu").memory_stats(device)
            return memory

        @staticmethod
        def parse_devices(devices: Any) -> int:
            """The number of processes on this host: ``devices`` of the Trainer."""
            return len(devices) if isinstance(devices, list | tuple) else int(devices)

        @staticmethod
        def get_parallel_devices(devices: int) -> list[torch.device]:
            """One device a process, number 0 in each."""
            return [torch.device("tpu", 0)] * devices

        @staticmethod
        def auto_device_count() -> int:
            """As many as the launcher has started on this host; one without a launcher."""
            return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

        @staticmethod
        def is_available() -> bool:
            """Whether the device was registered."""
            return hasattr(torch, "tpu")

        @staticmethod
        def name() -> str:
            """The name that Lightning's registry has it by."""
            return NAME

    return TPUAccelerator


def _choose_auto(original: Any, accelerator: Any) -> Any:
    @functools.wraps(original)
    def choose() -> Any:
        found = original()
        return accelerator() if found == "cpu" else found

    return choose


def _choose_strategy(original: Any, accelerator: Any, single: Any) -> Any:
    @functools.wraps(original)
    def choose(self: Any) -> Any:
        if not isinstance(self.accelerator, accelerator):
            return original(self)
        several = len(self._parallel_devices) > 1 or self._num_nodes_flag > 1
        return "ddp" if several else single(device=torch.device("tpu", 0))

    return choose


def _init_strategy(original: Any, accelerator: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any) -> None:
        original(self)
        # The Trainer's strategies have the one name, Fabric's the other.
        for name in ("determine_ddp_device_ids", "_determine_ddp_device_ids"):
            if isinstance(self.accelerator, accelerator) and hasattr(self.strategy, name):
                setattr(self.strategy, name, _no_numbers)

    return init


def _no_numbers() -> None:
    """DDP's ``device_ids`` where a process has one device and its module is there already."""


def _precision(original: Any, accelerator: Any, mixed: Any) -> Any:
    @functools.wraps(original)
    def choose(self: Any) -> Any:
        found = original(self)
        ours = isinstance(self.accelerator, accelerator) and isinstance(found, mixed)
        if not ours or found.device != "cuda":
            return found
        return type(found)(found.precision, "tpu")

    return choose
