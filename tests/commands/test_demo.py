"""The example programs and the demo, at sizes that take seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fuse
from fuse.commands.demo.command import main
from fuse.commands.demo.measure import CPU, RUNNERS, Counts, Run, measure
from fuse.commands.demo.programs import PROGRAMS
from fuse.commands.demo.report import plot, table
from fuse.examples import chargpt, digits

ROOT = Path(__file__).parents[2]
DIGITS, CHARGPT = PROGRAMS


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPT that compiles in a second."""
    for name, value in {"CONTEXT": 8, "BATCH": 2, "WIDTH": 12, "HEADS": 2, "LAYERS": 1}.items():
        monkeypatch.setattr(chargpt, name, value)


def losses(steps: int) -> list[float]:
    seen: list[float] = []
    measure(DIGITS, CPU, steps, seen.append)
    return seen


@pytest.mark.slow
def test_digits_reaches_its_accuracy_on_the_cpu() -> None:
    run = measure(DIGITS, CPU, 5 * (digits.TRAINING_IMAGES // digits.BATCH), lambda loss: None)
    assert run.score >= 0.95
    assert run.counts is None


def test_digits_reaches_its_accuracy_on_the_device() -> None:
    run = measure(DIGITS, "fused", 66, lambda loss: None)
    assert run.score >= 0.95
    assert run.counts is not None
    assert run.counts.compiles == 0
    assert run.counts.chunks <= 2
    assert run.counts.host_fallbacks == {}


@pytest.mark.slow
def test_the_gpt_gives_the_cpus_losses_in_every_mode(small: None) -> None:
    runs = {runner: measure(CHARGPT, runner, 4, lambda loss: None) for runner in RUNNERS}
    for run in runs.values():
        assert run.losses == pytest.approx(runs[CPU].losses, rel=1e-4)
        assert run.score == pytest.approx(runs[CPU].score, rel=1e-4)


def test_the_gpt_has_half_a_million_parameters() -> None:
    model = chargpt.build_model("cpu", chargpt.load_data("cpu"))
    assert 450_000 <= sum(parameter.numel() for parameter in model.parameters()) <= 550_000


@pytest.mark.slow
def test_the_gpt_learns() -> None:
    seen: list[float] = []
    measure(CHARGPT, CPU, 30, seen.append)
    assert seen[-1] < seen[0] - 0.8


def test_the_gpt_writes(small: None) -> None:
    text = chargpt.load_data("tpu")
    written = chargpt.write(chargpt.build_model("tpu", text), text, 5)
    assert len(written) == 5
    assert text.decode(text.encode(written)) == written


def test_minibatches_are_the_same_on_every_device() -> None:
    here, there = (next(digits.batches(digits.load_data(device))) for device in ("cpu", "tpu"))
    for mine, other in zip(here, there, strict=True):
        assert torch.equal(mine, other.cpu())


@pytest.mark.slow
def test_measuring_leaves_the_mode_alone() -> None:
    before = fuse.get_mode()
    measure(DIGITS, "strict", 1, lambda loss: None)
    assert fuse.get_mode() == before


def test_training_twice_gives_the_same_losses() -> None:
    assert losses(3) == losses(3)


def test_table() -> None:
    counts = Counts(15.0, 115.0, 1.0, 0.0, 4, 2.5, 3, {"histc": 7})
    runs = [
        Run(CPU, (2.0, 1.0, 0.5), (0.05, 0.02, 0.02), 0.5, None),
        Run("fused", (2.0, 1.0, 0.5), (0.005, 0.002, 0.002), 0.75, counts),
    ]
    lines = table(DIGITS, runs).splitlines()
    assert lines[0] == "Convolutional net on handwritten digits, 3 steps"
    assert lines[4].split() == ["CPU", "eager", "50.0%", "20.0", *["-"] * 7]
    assert lines[5].split() == ["Fused", "75.0%", "2.0", *["15", "115", "1", "0", "4", "2.5", "3"]]
    assert lines[7] == "Fused ran on the host: 7 x histc"
    assert len({len(line) for line in lines[1:7]}) == 1


def test_plot(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    plot([(DIGITS, [Run(CPU, (2.0, 1.0), (0.02, 0.01), 0.5, None)])], path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_command(small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deep" / "output"
    steps = ["--digits-steps", "1", "--chargpt-steps", "3"]
    assert main([*steps, "--runners", "cpu,fused", "--output", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "test accuracy" in output
    assert "held-out loss" in output
    assert (folder / "fuse-demo.png").exists()
    assert str(folder / "fuse-demo.png") in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runners", "cpu,gpu"], "'gpu': the valid ones are cpu, debug, strict, fused, compiled"),
        (["--digits-steps", "0"], "'0' is not a positive whole number"),
        (["--program", "resnet"], "invalid choice: 'resnet'"),
    ],
)
def test_bad_options(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("program", ["digits", "chargpt"])
def test_each_example_runs_on_its_own(program: str) -> None:
    few = {"digits": ["--epochs", "1"], "chargpt": ["--steps", "2"]}[program]
    command = [sys.executable, str(ROOT / "examples" / f"{program}.py"), "--device", "cpu", *few]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    assert {"digits": "epoch 1: loss", "chargpt": "step 2: loss"}[program] in found.stdout
