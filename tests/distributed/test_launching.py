"""Programs as users start them: by torchrun, and ``fuse demo --ranks``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuse.commands.demo import ranks

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}


def losses(wrap: str, device: str, seconds: float) -> list[float]:
    """The losses that the example prints, of two steps."""
    line = [str(ROOT / "examples" / "chargpt_ranks.py")]
    line += ["--device", device, "--wrap", wrap, "--steps", "6", "--every", "3"]
    done = ranks.launched(2, line, seconds, ENVIRONMENT)
    # PyTorch's FSDP2 over gloo now and then aborts when it ends: see fuse/commands/demo/ranks.py.
    assert done.returncode == 0 or device == "cpu", done.stderr
    found = [text for text in done.stdout.splitlines() if text.startswith("step")]
    assert len(found) == 2, done.stdout
    return [float(text.rpartition(" ")[2]) for text in found]


@pytest.mark.slow
@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_the_example_under_torchrun(wrap: str) -> None:
    assert losses(wrap, "tpu", 200) == pytest.approx(losses(wrap, "cpu", 90), abs=2e-3)


@pytest.mark.slow
def test_a_launch_that_takes_too_long_leaves_no_rank(tmp_path: Path) -> None:
    program = tmp_path / "stays.py"
    program.write_text(
        "import os, pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1], os.environ['RANK']).write_text(str(os.getpid()))\n"
        "time.sleep(300)\n"
    )
    with pytest.raises(subprocess.TimeoutExpired):
        ranks.launched(2, [str(program), str(tmp_path)], 60, ENVIRONMENT)
    found = [int((tmp_path / rank).read_text()) for rank in "01"]
    assert not [process for process in found if Path(f"/proc/{process}").exists()]


@pytest.mark.slow
def test_the_demo_on_two_ranks() -> None:
    line = [sys.executable, "-m", "fuse.commands.cli", "demo", "--ranks", "2"]
    done = subprocess.run(
        [*line, "--chargpt-steps", "7"],
        capture_output=True,
        text=True,
        timeout=400,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [text.split()[0] for text in done.stdout.splitlines()[-2:]] == ["ddp", "fsdp2"]


def test_a_program_for_the_cpu_loads_nothing_of_it() -> None:
    program = """
import sys, torch, torch.distributed as dist
dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(2)
dist.all_reduce(x)
assert dist.get_backend_config() == "cpu:gloo", dist.get_backend_config()
dist.destroy_process_group()
loaded = [m for m in sys.modules if m.split(".")[0] in ("jax", "jaxlib")]
assert not loaded and "fuse.distributed.group" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
