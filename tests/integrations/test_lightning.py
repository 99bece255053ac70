"""What Lightning's connector decides once it is extended, on a class of its form."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from fuse.integrations import lightning


class Accelerator:
    pass


class CPU(Accelerator):
    pass


class XLA(Accelerator):
    @staticmethod
    def is_available() -> bool:
        return False


class Registry(dict[str, Any]):
    def register(self, name: str, accelerator: Any, description: str, override: bool) -> None:
        assert override or name not in self
        self[name] = accelerator


class SingleDevice:
    def __init__(self, device: torch.device) -> None:
        self.device = device


class DDP:
    def determine_ddp_device_ids(self) -> list[int] | None:
        return [0]


class MixedPrecision:
    def __init__(self, precision: str, device: str) -> None:
        self.precision, self.device = precision, device


def connect(accelerator: Any = "auto", devices: Any = "auto", found: str = "cpu") -> Any:
    """A connector that has decided; ``found`` is what it would choose alone."""

    class Connector:
        _num_nodes_flag = 1

        def __init__(self) -> None:
            flag = self._choose_auto_accelerator() if accelerator == "auto" else accelerator
            self.accelerator = registry[flag]() if isinstance(flag, str) else flag
            count = self.accelerator.auto_device_count() if devices == "auto" else devices
            count = self.accelerator.parse_devices(count)
            self._parallel_devices = self.accelerator.get_parallel_devices(count)
            self.strategy = self._choose_strategy()
            self._init_strategy()
            self.precision = self._check_and_init_precision()

        @staticmethod
        def _choose_auto_accelerator() -> str:
            return found

        def _choose_strategy(self) -> Any:
            return SingleDevice(torch.device("cpu"))

        def _init_strategy(self) -> None:
            if self.strategy == "ddp":
                self.strategy = DDP()

        def _check_and_init_precision(self) -> Any:
            return MixedPrecision("bf16-mixed", "cpu" if found == "none" else "cuda")

    class Host(CPU):
        auto_device_count = staticmethod(lambda: 1)
        parse_devices = staticmethod(int)
        get_parallel_devices = staticmethod(lambda count: [torch.device("cpu")] * count)

    registry = Registry(cpu=Host, cuda=Host, tpu=XLA)
    lightning.extend(
        types.SimpleNamespace(
            _AcceleratorConnector=Connector,
            AcceleratorRegistry=registry,
            Accelerator=Accelerator,
            XLAAccelerator=XLA,
            SingleDeviceStrategy=SingleDevice,
            MixedPrecision=MixedPrecision,
        )
    )
    return Connector()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.mark.parametrize("name", ["auto", "tpu"])
def test_one_process_has_the_device_and_its_mixed_precision(name: str) -> None:
    one = connect(name)
    assert one.strategy.device == torch.device("tpu", 0)
    assert (one.precision.precision, one.precision.device) == ("bf16-mixed", "tpu")


@pytest.mark.parametrize(("name", "found"), [("cpu", "cpu"), ("auto", "cuda")])
def test_cpu_stays_cpu_and_another_accelerator_goes_first(name: str, found: str) -> None:
    one = connect(name, found=found)
    assert one.strategy.device == torch.device("cpu")
    assert one.precision.device == "cuda"


def test_several_processes_are_ddp_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for one in (connect(), connect("tpu", devices=[0, 1])):
        assert one._parallel_devices == [torch.device("tpu", 0)] * 2
        assert isinstance(one.strategy, DDP)
        assert one.strategy.determine_ddp_device_ids() is None
