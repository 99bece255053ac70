"""Runs a program as two ranks under PyTorch's launcher, with an end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SECONDS = 300.0
"""How long both ranks together may take, imports and compiling included."""


PROLOGUE = f"""
import json, os, pathlib, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})

def report(*values):
    pathlib.Path(f"rank-{{os.environ['RANK']}}.json").write_text(json.dumps(values))
"""
"""What a program starts with: ``report`` hands its values to the test."""


def launch(program: str, folder: Path, *launcher: str) -> subprocess.CompletedProcess[str]:
    """Run ``program``, a source text, on two ranks in ``folder``."""
    for old in folder.glob("rank-*.json"):
        old.unlink()
    path = folder / "program.py"
    path.write_text(PROLOGUE + program)
    launcher = launcher or ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    command = [sys.executable, "-m", *launcher, str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder
    )


def results(program: str, folder: Path, *launcher: str) -> list[Any]:
    """What each of the two ranks has reported, by rank."""
    done = launch(program, folder, *launcher)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
