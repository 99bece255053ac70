"""Host fallbacks: right, counted, warned about once with the user's line, or refused."""

from __future__ import annotations

import warnings

import pytest
import torch

import fuse
from fuse import config
from fuse.device import lazy
from fuse.errors import HostFallbackError
from tests.device.helpers import DEVICE, host_only, host_only_, mode


@pytest.fixture(autouse=True)
def fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test is the first to fall back."""
    torch.tpu.init()
    monkeypatch.setattr(lazy.engine().host_calls, "said", set())
    monkeypatch.delenv("FUSE_HOST_FALLBACK", raising=False)


NAME = "fuse_tests::host_only"


def fall_back() -> list[int]:
    return host_only(torch.tensor([1, 1, 3]).to(DEVICE)).tolist()


@pytest.mark.parametrize("name", ["debug", "strict", "fused"])
def test_it_is_right_counted_and_warned_about_once(name: str):
    before = fuse.stats()["host_fallbacks"].get(NAME, 0)
    with mode(name), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [fall_back() for _ in range(3)] == [[3, 3, 7]] * 3
    (warning,) = caught
    assert f"{NAME} runs on the host" in str(warning.message)
    assert "test_fallback.py:" in str(warning.message)
    assert warning.category.__name__ == "HostFallbackWarning"
    assert fuse.stats()["host_fallbacks"][NAME] == before + 3


def test_error_refuses_and_loses_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    x = torch.arange(3, device=DEVICE) * 2
    with pytest.raises(HostFallbackError, match=NAME) as caught:
        host_only(x)
    assert "test_fallback.py" in str(caught.value)
    assert "FUSE_HOST_FALLBACK" in str(caught.value)
    assert isinstance(caught.value, NotImplementedError)
    assert x.tolist() == [0, 2, 4]


def test_error_also_refuses_writes(monkeypatch: pytest.MonkeyPatch):
    """A refused call has changed nothing, also where its kernel writes in place."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    weight = torch.ones(3, device=DEVICE)
    with pytest.raises(HostFallbackError):
        host_only_(weight)
    assert weight.tolist() == [1, 1, 1]
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    assert host_only_(weight) is weight and weight.tolist() == [2, 2, 2]


def test_silent_is_still_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    before = fuse.stats()["host_fallbacks"].get(NAME, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fall_back()
    assert fuse.stats()["host_fallbacks"][NAME] == before + 1


def test_a_custom_operator_without_a_rule(monkeypatch: pytest.MonkeyPatch):
    """It reads views and its result is the device's."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    y = host_only((torch.arange(6.0, device=DEVICE) + 1).view(2, 3).t()[1:])
    assert y.device.type == "tpu" and (y + 0).tolist() == [[5, 11], [7, 13]]


def test_a_wrong_call_is_the_users_error_and_no_fallback():
    before = fuse.stats()["host_fallbacks"]
    with pytest.raises(RuntimeError):
        torch.tensor([-1]).to(DEVICE).bincount()
    assert fuse.stats()["host_fallbacks"] == before


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_updates_in_place_and_their_gradients_stay_on_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their in-place forms arrive as ``out=`` of the tensor they update."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")

    def program(device: str) -> torch.Tensor:
        rows, values = torch.tensor([0, 2, 2]).to(device), torch.arange(9.0).view(3, 3).to(device)
        places = torch.tensor([[0, 2, 1]]).to(device)
        x = torch.ones(4, 3).to(device)
        x.index_add_(0, rows, values).index_copy_(0, rows[:2], values[1:])
        x.index_reduce_(0, rows, values, "amax").scatter_(0, places, values)
        x.scatter_add_(0, places, values).scatter_reduce_(0, places, values, "amin")
        x.requires_grad_()
        (x.index_select(0, rows) + x.gather(0, places)).square().sum().backward()
        return torch.cat([x.detach(), x.grad]).cpu()

    torch.testing.assert_close(program("tpu"), program("cpu"))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("backend", config.BACKENDS)
def test_parts_of_a_dtype_that_only_the_host_has(monkeypatch: pytest.MonkeyPatch, backend: str):
    """Memory of complex32 stays on the host, also where a view reads it as float16."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    with fuse.FusedEager(backend=backend):
        x = torch.tensor([1.0, -2.0]).to(DEVICE).requires_grad_()
        half = x.chalf()
        torch.view_as_real(half).sum().backward()
        assert half.detach().cpu().to(torch.complex64).tolist() == [1, -2]
        assert x.grad is not None and x.grad.tolist() == [1, 1]


@pytest.mark.parametrize("name", ["strict", "fused"])
def test_quotients_of_integers_stay_on_the_device(name: str, monkeypatch: pytest.MonkeyPatch):
    """Nobody divides by zero to find out what the CPU's kernel takes."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    x, y = torch.arange(-3, 3).to(DEVICE), torch.tensor([[2], [-3]]).to(DEVICE)
    with mode(name):
        for _ in range(6):
            for call in (
                torch.floor_divide,
                torch.remainder,
                torch.fmod,
                torch.Tensor.floor_divide_,
            ):
                given = (x + y * 0, y)
                wanted = call(given[0].cpu(), y.cpu())
                assert call(given[0] + 0, y).tolist() == wanted.tolist()
