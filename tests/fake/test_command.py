"""``fuse aot --fake``: an unmodified training program, run by shapes as one of many ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import fuse
from fuse.aot import command
from fuse.backends.estimates import Estimate, Transfer, Variant
from fuse.backends.fake.backend import FakeBackend
from fuse.device import lazy
from tests.targets.fakes import FakeTarget

PROGRAM = """
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group()
assert dist.get_world_size() == int(os.environ["WORLD_SIZE"]) == 64
torch.manual_seed(0)
with torch.device("tpu"):
    model = torch.nn.Linear(128, 128)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(int(sys.argv[1])):
    loss = model(torch.randn(4, 128).to("tpu")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
dist.destroy_process_group()
"""


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> FakeTarget:
    target = FakeTarget()

    def compile_step(step: Any, variant: Variant) -> tuple[Estimate, bytes]:
        target.compiled.append(step)
        transfer = Transfer("all-gather", 1 << 20, 64, 0.0, 1e-3, 5e-4)
        return Estimate(cycles=10_000, transfers=(transfer,), step_seconds=2e-3), b""

    monkeypatch.setattr(target, "compile", compile_step)
    monkeypatch.setattr(FakeBackend, "target", lambda self, name, seconds: target)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    return target


def run(tmp_path: Path, steps: int, *more: str) -> int:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    given = ["--target", "v5e:8x8", "--ranks", "64", "--fake", *more, str(program), str(steps)]
    return command.main(given)


def test_the_third_step_of_a_program_is_compiled(
    tmp_path: Path, compiled: FakeTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "step.html"
    assert run(tmp_path, 4, "--html", str(page)) == 0
    printed = capsys.readouterr().out
    assert printed.count("loss 1.0") == 4
    assert "64 ranks" in printed
    assert "MFU" in printed
    assert "1 all-gather of 1.0 MB over 64: 1.00 ms, of it 500.0 us exposed" in printed
    assert "<svg" in page.read_text()
    step: Any = compiled.compiled[-1]
    kinds = [form.kind for form in step.forms()]
    assert {"all_gather", "reduce_scatter"} <= set(kinds)
    assert not dist.is_initialized()
    assert "WORLD_SIZE" not in os.environ
    assert fuse.get_backend() != "fake"


def test_a_program_of_two_steps_is_told_so(
    tmp_path: Path, compiled: FakeTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, 2) == 1
    assert "no optimizer made three steps" in capsys.readouterr().err
    assert compiled.compiled == []
    assert lazy.engine().inspector is None
    assert (torch.ones(2, device="tpu") + 1).tolist() == [2.0, 2.0]
