"""Reports of a target whose compiler estimates no cycles: times by published peaks, and said so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import fuse
from fuse.aot.report import last_step
from fuse.backends.estimates import Machine
from fuse.device import lazy
from tests.targets.fakes import FakeTarget

Make = Callable[..., FakeTarget]
MACHINE = Machine("fake", 100e12, 1e9, 10**9, 0.0, "tests", peaks={"vector": 1e12})
"""A byte takes it a nanosecond."""
GPU = {"machine": MACHINE, "kind": "GPU"}


def product(size: int = 128) -> Callable[[], float]:
    a, b = (torch.randn(size, size).to("tpu") for _ in range(2))
    return lambda: (a @ b).sum().item()


def test_a_report_has_seconds_and_no_cycles(fake: Make) -> None:
    fake(**GPU)
    report = fuse.compile_for("fake", product(), advice=False)
    assert report.cycles is None
    assert report.seconds == pytest.approx(700e-9)  # a product's 600 bytes, and 100
    data = report.to_dict()
    assert (data["model"], data["kernels"], data["machine"]["clock"]) == ("roofline", 4, None)
    (chunk,) = report.chunks
    assert chunk["cycles"] is None and chunk["seconds"] == report.seconds
    assert chunk["bound_seconds"]["memory"] == report.seconds
    assert (chunk["bytes_moved"], chunk["kernels"]) == (700, 4)
    assert [cost["cycles"] for cost in chunk["costs"]] == [None, None]
    assert [cost["seconds"] for cost in chunk["costs"]] == pytest.approx([600e-9, 100e-9])


def test_its_text_and_page_say_which_model_and_never_cycles(fake: Make, tmp_path: Path) -> None:
    fake(**GPU)
    report = fuse.compile_for("fake", product())
    text, page = str(report), report.save(tmp_path / "report.html").read_text()
    for found in (text, page):
        assert "bound from below, of what was compiled and published peaks; no GPU ran" in found
        assert "cycles" not in found and "TPU" not in found and "is padding" not in found
    assert "at least, by the roofline of 1 GB/s and 100 TFLOP/s (bfloat16)" in text
    assert "compiled by a fake 0" in text
    assert "without an estimate, not in that time: 2 sort" in text
    assert page.count("<rect") > 3
    assert json.loads(json.dumps(report.to_dict()))["cycles"] is None


def test_advice_about_products_has_times(fake: Make) -> None:
    fake(**GPU)
    report = fuse.compile_for("fake", product())
    (found,) = report.advice
    assert found["what"].startswith("1 products of float32 keep all their digits")
    assert (found["cycles_before"], found["cycles_after"]) == (None, None)
    assert found["seconds_before"] == pytest.approx(700e-9)
    assert found["seconds_after"] == pytest.approx(200e-9)
    assert found["gain"] == pytest.approx(5 / 7)
    assert found["proof"] == 'compiled so: 700 ns became 200 ns; "high" makes 400 ns'


def test_what_only_tpus_do_slowly_is_no_advice(fake: Make) -> None:
    """Odd dimensions, few rows, numbers of 64 bits, narrow heads."""
    fake(**GPU)
    x, w = (torch.randn(s).to("tpu", torch.bfloat16) for s in ((16, 100), (100, 300)))
    wide = torch.randn(64, 64, dtype=torch.float64).to("tpu")
    q = torch.randn(2, 4, 128, 64).to("tpu", torch.bfloat16)
    attend = torch.nn.functional.scaled_dot_product_attention

    def step() -> float:
        parts = [(x @ w).float().sum(), (wide * 2).exp().sum(), attend(q, q, q).float().sum()]
        return sum(part.to(torch.float32) for part in parts).item()

    assert fuse.compile_for("fake", step).advice == []


def test_reads_on_the_host_are_said_of_any_target(fake: Make) -> None:
    fake(**GPU)
    x = torch.ones(8).to("tpu", torch.bfloat16)

    def many() -> None:
        for at in range(4):
            (x * at).float().sum().item()

    (found,) = fuse.compile_for("fake", many).advice
    assert "4 times the call waits" in found["what"]


def test_a_programs_last_step_and_its_end_are_told_by_times(
    fake: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    fake(**GPU)
    step = product()
    targeted = lazy.engine().open_target("fake")
    lazy.set_target(targeted)
    for _ in range(3):
        step()
    lazy.set_target(None)
    assert len(last_step(targeted)) == 1
    targeted.finish()
    said = capfd.readouterr().err
    assert (
        "0 refused, 0.002 ms at least for all of 3 traces (by its published peaks; no GPU" in said
    )
    assert "cycles" not in said
