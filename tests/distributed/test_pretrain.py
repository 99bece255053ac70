"""examples/pretrain.py on the device: the losses of the same program on the CPU with gloo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fuse.commands.demo import ranks
from tests.distributed.test_launching import ENVIRONMENT, ROOT

STEPS = 6
HALF = 3

Metrics = dict[int, tuple[float, float]]
"""Loss and gradient norm by step."""


def metrics(size: int, device: str, *options: str) -> Metrics:
    """Loss and gradient norm of each step that a run by torchrun prints."""
    line = [str(ROOT / "examples" / "pretrain.py"), "--device", device, "--every", "1", *options]
    done = ranks.launched(size, line, 250, ENVIRONMENT)
    # PyTorch's FSDP2 over gloo now and then aborts when it ends: see fuse/commands/demo/ranks.py.
    assert done.returncode == 0 or device == "cpu", done.stderr
    found = re.findall(r"step (\d+): loss ([0-9.]+), gradient norm ([0-9.]+)", done.stdout)
    return {int(step): (float(loss), float(norm)) for step, loss, norm in found}


def assert_close(found: Metrics, expected: Metrics) -> None:
    assert list(found) == list(expected)
    for step, (loss, norm) in found.items():
        assert loss == pytest.approx(expected[step][0], abs=2e-3), step
        assert norm == pytest.approx(expected[step][1], rel=5e-3), step


@pytest.fixture(scope="module")
def expected() -> Metrics:
    found = metrics(2, "cpu", "--steps", str(STEPS))
    assert list(found) == list(range(1, STEPS + 1))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "--tensor 2 --recompute"),
        ("--tensor 2 --compile --recompute", ""),
    ],
    ids=["data, then tensor parallel", "tensor parallel and compiled, then data"],
)
def test_training_goes_on_from_a_checkpoint_of_another_mesh(
    before: str, after: str, expected: Metrics, tmp_path: Path
) -> None:
    saved = str(tmp_path / "saved")
    first = metrics(2, "tpu", "--steps", str(HALF), "--save", saved, *before.split())
    then = metrics(2, "tpu", "--steps", str(STEPS), "--resume", saved, *after.split())
    assert list(first) == list(range(1, HALF + 1))
    assert_close(first | then, expected)


@pytest.mark.slow
def test_a_mesh_of_two_axes(expected: Metrics) -> None:
    found = metrics(4, "tpu", "--steps", str(STEPS), "--tensor", "2")
    assert_close(found, expected)
