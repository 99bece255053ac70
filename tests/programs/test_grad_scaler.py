"""``torch.amp.GradScaler``: unscaling, skipped steps and the scale's growth, as on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fuse
from tests.device.helpers import DEVICE

STEPS = 12
OVERFLOWS = (2, 7)


def train(device: torch.device | str, fused: bool, dtype: torch.dtype) -> list[list[float]]:
    """After every step: the scale, how long it has not grown, and all parameters."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler(
        torch.device(device).type, init_scale=256.0, growth_interval=3, growth_factor=4.0
    )
    found = []
    for step in range(STEPS):
        x = torch.linspace(-1, 1, 12).reshape(3, 4).to(device, dtype) * (step + 1)
        loss = model(x).square().mean() * (float("inf") if step in OVERFLOWS else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        state = scaler.state_dict()
        weights = torch.cat([one.detach().flatten() for one in model.parameters()])
        found.append([state["scale"], state["_growth_tracker"], *weights.tolist()])
    return found


@pytest.mark.parametrize("fused", [False, True])
def test_training_is_the_cpus(mode: str, fused: bool) -> None:
    before = fuse.stats()["host_fallbacks"]
    found = train(DEVICE, fused, torch.float32)
    assert fuse.stats()["host_fallbacks"] == before
    expected = train("cpu", fused, torch.float32)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    # It shrinks where a gradient is infinite, and grows after three steps where none is.
    assert [one[0] for one in found[:6]] == [256.0, 256.0, 128.0, 128.0, 128.0, 512.0]


@pytest.mark.parametrize("value", [1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_gradients_are_unscaled_in_their_dtype(dtype: torch.dtype, value: float) -> None:
    def unscale(device: torch.device | str) -> list[list[float]]:
        grads = [torch.tensor([3.0, 1.7], dtype=dtype), torch.tensor([[value]], dtype=dtype)]
        grads = [one.to(device) for one in grads]
        found, scale = torch.zeros(1, device=device), torch.full((1,), 0.3).to(device)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
        return [found.tolist(), *(one.flatten().tolist() for one in grads)]

    for _ in range(6):
        assert str(unscale(DEVICE)) == str(unscale("cpu"))


def test_a_scale_that_would_overflow_stays() -> None:
    def grown(device: torch.device | str) -> list[object]:
        scale = torch.full((1,), 3e38).to(device)
        tracker = torch.ones(1, dtype=torch.int32).to(device)
        torch._amp_update_scale_(scale, tracker, torch.zeros(1).to(device), 2.0, 0.5, 2)
        return [scale.tolist(), tracker.tolist()]

    for _ in range(6):
        assert grown(DEVICE) == grown("cpu") == [[3.0000000054977558e38], [0]]
