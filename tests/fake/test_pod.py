"""What a pod's report says, of a compiler's estimate that is made up."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fuse
from fuse.aot.pod import PodReport
from fuse.backends.estimates import Estimate, Transfer
from fuse.backends.fake.backend import FakeBackend
from fuse.errors import FuseError
from tests.targets.fakes import FakeTarget


def reported(monkeypatch: pytest.MonkeyPatch, **estimate: Any) -> PodReport:
    """The report of a step of one product, as if the compiler had said ``estimate``."""
    target = FakeTarget()
    monkeypatch.setattr(target, "compile", lambda step, variant: (Estimate(**estimate), b""))
    monkeypatch.setattr(FakeBackend, "target", lambda self, name, seconds: target)
    with fuse.fake(ranks=2):
        x = torch.randn(64, 64, device="tpu")
        return fuse.compile_pod("v5e:1x2", lambda: (x @ x).sum().item())


def test_figures_follow_from_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = [Transfer("all-gather", 1000, 2, at * 1e-3, 2e-4, 1e-4) for at in range(3)]
    found = reported(
        monkeypatch,
        step_seconds=1e-3,
        temporary_bytes=500,
        transfers=tuple(moved),
        unestimated={"all-gather": 3, "sort": 1},
    )
    assert (found.ranks, found.flops) == (2, 2 * 64**3)
    assert found.mfu == pytest.approx(2 * 64**3 / (1e-3 * FakeTarget().machine.flops))
    assert found.exposed_seconds == pytest.approx(3e-4)
    (one,) = found.collectives
    assert (one["count"], one["seconds"]) == (3, pytest.approx(6e-4))
    assert found.to_dict()["unestimated"] == {"sort": 1}  # the timeline has the others
    assert found.fits
    assert found.peak_bytes == 500


def test_what_does_not_fit_names_the_largest_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reported(monkeypatch, step_seconds=1.0, temporary_bytes=1 << 50)
    assert not found.fits
    assert "it does not fit" in str(found)
    assert "1 float32[64,64]: 16.4 kB" in str(found)


def test_a_refusal_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reported(monkeypatch, error="no room\nfor it", kind="refused")
    assert found.error == "no room\nfor it"
    assert str(found).splitlines()[1] == "refused      no room"


def test_a_deeper_model_is_on_the_line_through_two(monkeypatch: pytest.MonkeyPatch) -> None:
    few, more = (
        reported(monkeypatch, step_seconds=1e-3 + at * 1e-3, temporary_bytes=1000 + 100 * at)
        for at in (2, 4)
    )
    deep = few.at_depth(more, (2, 4), 32)
    assert deep.step_seconds == pytest.approx(33e-3)
    assert deep.peak_bytes == 4200
    assert deep.mfu == pytest.approx(few.mfu * 3 / 33)
    assert "extrapolated to 32 layers from compiling 2 and 4" in str(deep)
    refused = reported(monkeypatch, error="no", kind="refused")
    for other, layers in ((few, (2, 2)), (refused, (2, 4))):
        with pytest.raises(FuseError, match="two compiled steps of one target and different"):
            few.at_depth(other, layers, 32)


def test_a_step_outside_a_fake_run_is_refused() -> None:
    with pytest.raises(FuseError, match=r"hint: make the model and call it inside `with fuse"):
        fuse.compile_pod("v5e:2x2", lambda: None)
