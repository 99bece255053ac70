"""Reports of programs planned for a target: what they hold, and that the program is unaffected."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import fuse
from fuse.aot.report import last_step, report_of
from fuse.device import lazy
from fuse.engine.targeted import Targeted
from fuse.trace.borders import Borders
from tests.targets.fakes import FakeTarget

Make = Callable[..., FakeTarget]


def training(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Callable[[], float]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to("tpu", dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(5, 8).to("tpu", dtype)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return model, step


def test_a_steps_report_counts_its_last_call(fake: Make) -> None:
    target = fake()
    _, step = training()
    report = fuse.compile_for("fake", step)
    assert report.launches == sum(chunk["runs"] for chunk in report.chunks) == 1
    (chunk,) = report.chunks
    assert report.cycles == chunk["cycles"] == sum(cost["cycles"] for cost in chunk["costs"])
    assert report.failures == []
    assert chunk["lines"] == [line for line in chunk["lines"] if __file__ in line] != []
    assert chunk["padding"] == pytest.approx(0.5)
    assert report.peak_bytes == chunk["peak_bytes"] > 0
    assert target.closed == 1
    assert lazy.engine().targeted is None


def test_cycles_that_kernels_state_are_in_the_sum_and_named(fake: Make) -> None:
    fake(kernels=("tanh",))
    x = torch.randn(2, 5).to("tpu")
    report = fuse.compile_for("fake", lambda: (x + 1).tanh().sum().item(), advice=False)
    (chunk,) = report.chunks
    assert chunk["kernel_cycles"] == 100
    assert report.cycles == sum(cost["cycles"] for cost in chunk["costs"]) > 100
    line = "  kernels: 100 of the cycles, from the work that they state"
    assert line in str(report)
    assert line not in str(fuse.compile_for("fake", lambda: (x + 1).sin().sum().item()))


def test_the_program_runs_as_without_a_target(fake: Make) -> None:
    model, step = training()
    plain = [step() for _ in range(6)]
    fake()
    twin, twin_step = training()
    seen: list[float] = []
    fuse.compile_for("fake", lambda: seen.append(twin_step()))
    seen += [twin_step() for _ in range(3)]
    assert seen == pytest.approx(plain, rel=1e-6)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu())


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_refused_operation_is_named_with_its_line(fake: Make, mode: str) -> None:
    fake(refused=("tanh",))
    x = torch.randn(3, 3).to("tpu")
    fuse.set_mode(mode)
    try:
        report = fuse.compile_for("fake", lambda: (x + 1).tanh().sum().item())
    finally:
        fuse.set_mode("fused")
    (failure,) = report.failures
    assert failure["operator"] == "aten::tanh"
    assert failure["operands"] == "float32[3,3]"
    assert failure["kind"] == "refused"
    assert failure["source"].startswith(__file__)
    assert "aten::tanh(float32[3,3])  at " in str(report)
    assert "refused: no tanh" in str(report)


def test_a_compiler_that_dies_costs_the_report_only(fake: Make) -> None:
    fake(dies_of=("sin",))
    x = torch.ones(3).to("tpu")
    seen: list[float] = []
    report = fuse.compile_for("fake", lambda: seen.append(x.sin().sum().item()))
    assert seen == [pytest.approx(3 * 0.841471, rel=1e-5)] * 3
    assert [failure["kind"] for failure in report.failures] == ["aborted"]


def test_what_the_target_cannot_run_runs_on_the_host_and_is_named(fake: Make) -> None:
    fake(rejected=("cos",))
    x = torch.ones(3).to("tpu")
    with pytest.warns(UserWarning, match="cos"):
        report = fuse.compile_for("fake", lambda: x.cos().sum().item())
    assert [call["operator"] for call in report.to_dict()["host_calls"]] == ["aten::cos"]
    assert report.failures == []
    assert "a fake has none" in str(report)
    before = fuse.stats()["host_fallbacks"].get("aten::cos", 0)
    (x + 1).cos().sum().item()  # without the target it is recorded again
    assert fuse.stats()["host_fallbacks"].get("aten::cos", 0) == before


def test_plans_are_the_targets_also_where_this_machine_would_run_uncompiled(
    fake: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake()
    engine = lazy.engine()
    monkeypatch.setenv("FUSE_TIER", "auto")
    monkeypatch.setattr(engine.planning.compiler, "background", True)
    assert engine.tier == "auto"
    targeted = engine.open_target("fake")
    lazy.set_target(targeted)
    assert engine.tier == "compiled"
    for size in range(2, 14):
        (torch.ones(size).to("tpu") * 2).sum().item()
    lazy.set_target(None)
    assert engine.tier == "auto"
    monkeypatch.undo()
    lazy.bound_uncompiled(lazy.core(), engine)
    assert len(targeted.plans) == 12


def test_a_target_says_where_its_traces_are_cut(fake: Make) -> None:
    def step() -> float:
        x = torch.ones(4, 4).to("tpu")
        for _ in range(100):
            x = (x @ x).tanh()
        return x.sum().item()

    counts = []
    for borders in (Borders(), Borders(whole=1000), Borders(whole=1000, dense=100)):
        fake(borders=borders)
        counts.append(len(fuse.compile_for("fake", step).chunks))
    cut, *whole = counts
    assert cut > 1 and whole == [1, 1]  # its products are small


def test_a_program_s_last_step_is_what_lies_between_two_runs_of_its_dearest_trace(
    fake: Make,
) -> None:
    fake()
    _, step = training()
    extra = torch.ones(4).to("tpu")
    targeted = lazy.engine().open_target("fake")
    lazy.set_target(targeted)
    for at in range(6):
        step()
        if at % 2:
            (extra + 1).sum().item()
    lazy.set_target(None)
    found = last_step(targeted)
    assert len(found) == 1 or found.count(found[-1]) == 1
    report = report_of(targeted, found)
    assert report.launches == len(found)


def refused_before_its_steps(fake: Make) -> tuple[FakeTarget, Targeted]:
    """A program whose first trace the target refuses, and whose three steps it does not."""
    target = fake(refused=("tanh",))
    x = torch.ones(4).to("tpu")
    targeted = lazy.engine().open_target("fake")
    lazy.set_target(targeted)
    x.tanh().sum().item()
    for _ in range(3):
        (x * 2 + 1).sum().item()
    lazy.set_target(None)
    return target, targeted


def test_failures_of_a_whole_program_are_those_outside_its_last_step_too(fake: Make) -> None:
    _, targeted = refused_before_its_steps(fake)
    assert report_of(targeted, last_step(targeted)).failures == []
    (failure,) = report_of(targeted, last_step(targeted), whole=True).failures
    assert failure["operator"] == "aten::tanh"


def test_what_runs_once_is_compiled_where_it_is_asked_for(fake: Make, tmp_path: Path) -> None:
    target, kept = fake(), []
    x = torch.ones(4).to("tpu")

    def step() -> None:
        if not kept:  # as an optimizer makes its averages in its first step
            kept.append(x * 2)
        kept[0] = (kept[0] + x) / 3
        kept[0].sum().item()

    report = fuse.compile_for("fake", step, advice=False)
    first, last = report._targeted.plans
    assert (first.runs, last.runs) == (1, 2)
    assert set(target.compiled) == set(last.chunks)
    report.pack(tmp_path / "pack.zip")
    assert set(target.compiled) >= set(first.chunks)


def test_a_step_s_report_is_ready_before_the_rest_is_compiled(fake: Make) -> None:
    target, targeted = refused_before_its_steps(fake)
    seen: list[tuple[int, int]] = []
    report = report_of(
        targeted,
        last_step(targeted),
        whole=True,
        ready=lambda report: seen.append((report.cycles, len(report.failures))),
    )
    assert seen == [(report.cycles, 0)]
    assert len(report.failures) == len(report.to_dict()["failures"]) == 1
    assert any("tanh" in str(chunk) for chunk in target.compiled)


def test_text_dict_and_page_say_that_no_tpu_ran(fake: Make, tmp_path: Path) -> None:
    fake()
    _, step = training()
    report = fuse.compile_for("fake", step)
    note = "estimate of the target's compiler or is computed from one; no TPU ran"
    assert note in str(report)
    assert note in json.dumps(report.to_dict())
    page = report.save(tmp_path / "report.html").read_text()
    assert "no TPU ran" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert page.count("<rect") > 3


def test_a_page_escapes_what_the_program_says(fake: Make) -> None:
    fake(refused=("tanh",))
    x = torch.ones(2).to("tpu")
    report = fuse.compile_for("fake", lambda: x.tanh().sum().item())
    report.to_dict()["failures"][0]["reason"] = "<script>"
    assert "<script>" not in report.to_html()


def test_a_pack_holds_executables_and_plans_under_the_targets_keys(
    fake: Make, tmp_path: Path
) -> None:
    fake()
    _, step = training()
    report = fuse.compile_for("fake", step)
    with zipfile.ZipFile(report.pack(tmp_path / "pack.zip")) as bundle:
        held = {Path(name).stem for name in bundle.namelist()}
    targeted = report._targeted
    chunks = {chunk for planned in targeted.plans for chunk in planned.chunks}
    wanted = {targeted.host_key(chunk).digest for chunk in chunks}
    assert wanted <= held
    assert len(held) == len(wanted) + len(targeted.plans)  # each has 16 operations or more


def test_equal_chunks_are_compiled_once(fake: Make) -> None:
    target = fake()
    x = torch.ones(7).to("tpu")
    fuse.compile_for("fake", lambda: [((x + 3) * 5).sum().item() for _ in range(4)])
    texts = [str(chunk) for chunk in target.compiled]
    assert len(texts) == len(set(texts))


def test_equal_operations_are_compiled_alone_once(fake: Make) -> None:
    """A product of eight layers with an odd width, for advice: one before and one after."""
    target = fake()
    net = nn.Sequential(*(nn.Linear(96, 96) for _ in range(8))).to("tpu").requires_grad_(False)
    x = torch.ones(128, 96).to("tpu")
    fuse.compile_for("fake", lambda: net(x).sum().item())
    alone = [chunk for chunk in target.compiled if chunk.nodes[0].target == "addmm"]
    assert [len(chunk.nodes) for chunk in alone if len(chunk.nodes) == 1] == [1, 1]


def test_what_the_function_raises_is_raised_and_the_target_is_gone(fake: Make) -> None:
    fake()

    def broken() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fuse.compile_for("fake", broken)
    assert lazy.engine().targeted is None
