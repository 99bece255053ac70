"""Host fallbacks: right, counted, warned about once with the user's line, or refused."""

from __future__ import annotations

import warnings

import pytest
import torch

import fuse
from fuse.device import lazy
from fuse.errors import HostFallbackError
from tests.device.helpers import DEVICE, mode


@pytest.fixture(autouse=True)
def fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test is the first to fall back."""
    torch.tpu.init()
    monkeypatch.setattr(lazy.engine(), "_warned", set())
    monkeypatch.delenv("FUSE_HOST_FALLBACK", raising=False)


def fall_back() -> list[int]:
    return torch.tensor([1, 1, 3]).to(DEVICE).bincount().tolist()


@pytest.mark.parametrize("name", ["debug", "strict", "fused"])
def test_it_is_right_counted_and_warned_about_once(name: str):
    before = fuse.stats()["host_fallbacks"].get("bincount", 0)
    with mode(name), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [fall_back() for _ in range(3)] == [[0, 2, 0, 1]] * 3
    (warning,) = caught
    assert "aten::bincount runs on the host" in str(warning.message)
    assert "test_fallback.py:" in str(warning.message)
    assert warning.category.__name__ == "HostFallbackWarning"
    assert fuse.stats()["host_fallbacks"]["bincount"] == before + 3


def test_error_refuses_and_loses_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    x = torch.arange(3, device=DEVICE) * 2
    with pytest.raises(HostFallbackError, match="aten::bincount") as caught:
        x.bincount()
    assert "test_fallback.py" in str(caught.value)
    assert "FUSE_HOST_FALLBACK" in str(caught.value)
    assert isinstance(caught.value, NotImplementedError)
    assert x.tolist() == [0, 2, 4]


@pytest.mark.xfail(strict=True, reason="the kernel runs before the policy is looked at")
def test_error_also_refuses_writes(monkeypatch: pytest.MonkeyPatch):
    """A refused call has changed nothing, also where its kernel writes in place."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    weight = torch.ones(3, device=DEVICE)
    with pytest.raises(HostFallbackError):
        torch._fused_sgd_(
            [weight],
            [torch.ones(3, device=DEVICE)],
            [],
            weight_decay=0.0,
            momentum=0.0,
            lr=0.5,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=True,
        )
    assert weight.tolist() == [1, 1, 1]


def test_silent_is_still_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    before = fuse.stats()["host_fallbacks"].get("bincount", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fall_back()
    assert fuse.stats()["host_fallbacks"]["bincount"] == before + 1


def test_a_custom_operator_without_a_rule(monkeypatch: pytest.MonkeyPatch):
    """An operator of the user's own, known to PyTorch on the CPU only."""
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    with torch.library._scoped_library("fuse_tests", "FRAGMENT") as library:
        library.define("twice_and_one(Tensor x, int n=1) -> Tensor")
        library.impl("twice_and_one", lambda x, n=1: x * 2 + n, "CPU")
        x = torch.arange(3.0, device=DEVICE)
        y = torch.ops.fuse_tests.twice_and_one(x + 1, 5)
        assert y.device.type == "tpu" and y.tolist() == [7, 9, 11]


def test_a_wrong_call_is_the_users_error_and_no_fallback():
    before = fuse.stats()["host_fallbacks"]
    with pytest.raises(RuntimeError):
        torch.tensor([-1]).to(DEVICE).bincount()
    assert fuse.stats()["host_fallbacks"] == before
