"""What ``PartialState`` decides once it is extended, on a class of its form."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from fuse.integrations import accelerate


class Kinds:
    NO, MULTI_GPU, MULTI_CPU = "NO", "MULTI_GPU", "MULTI_CPU"


def state(found: str = "cpu") -> Any:
    """A fresh module of accelerate's form, extended; ``found`` is what it would choose alone."""

    class PartialState:
        device: torch.device | None = None
        local_process_index = 1
        _cpu = False

        @property
        def default_device(self) -> torch.device:
            return torch.device(found)

        def _prepare_backend(
            self, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
        ) -> tuple[str | None, str]:
            return ("gloo", Kinds.MULTI_CPU) if cpu else (backend, Kinds.NO)

        def set_device(self) -> None:
            if self.device is None:
                self.device = torch.device("cpu") if self._cpu else self.default_device

    module = types.SimpleNamespace(PartialState=PartialState, DistributedType=Kinds)
    accelerate.extend(module)
    return module.PartialState()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.delenv("ACCELERATE_BYPASS_DEVICE_MAP", raising=False)


@pytest.mark.parametrize(("found", "taken"), [("cpu", "tpu"), ("cuda", "cuda"), ("mps", "mps")])
def test_the_device_is_taken_where_there_is_no_other(found: str, taken: str) -> None:
    assert state(found).default_device == torch.device(taken)


def test_cpu_stays_cpu_even_where_the_variable_says_otherwise() -> None:
    one = state()
    one._cpu, one.backend, one.distributed_type = True, None, Kinds.NO
    one.set_device()
    assert one.device == torch.device("cpu")
    one.device = torch.device("tpu")  # what ACCELERATE_TORCH_DEVICE=tpu has put there
    one.set_device()
    assert one.device == torch.device("cpu")


def test_one_process_makes_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert state()._prepare_backend() == (None, Kinds.NO)


@pytest.mark.usefixtures("launched")
def test_ranks_make_a_group_and_each_has_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    one = state()
    assert one._prepare_backend() == ("cpu:gloo,tpu:tpu_dist", Kinds.MULTI_GPU)
    assert one._prepare_backend(backend="tpu_dist") == ("tpu_dist", Kinds.MULTI_GPU)
    assert one._prepare_backend(cpu=True) == ("gloo", Kinds.MULTI_CPU)
    one.backend, one.distributed_type = one._prepare_backend()
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    one.set_device()
    assert one.device == torch.device("tpu", 0)
    assert environment == {"ACCELERATE_BYPASS_DEVICE_MAP": "true"}
    one.device = torch.device("tpu")  # ACCELERATE_TORCH_DEVICE=tpu
    one.set_device()
    assert one.device == torch.device("tpu")


@pytest.mark.usefixtures("launched")
def test_a_backend_without_the_device_is_an_error_with_a_hint() -> None:
    with pytest.raises(ValueError, match="every rank would train alone") as raised:
        state()._prepare_backend(backend="gloo")
    assert "'gloo' does not serve the device tpu" in str(raised.value)
    assert "ddp_backend=None" in str(raised.value)
