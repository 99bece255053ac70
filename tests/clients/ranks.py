"""Runs a program as two ranks under PyTorch's launcher, with an end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SECONDS = 300.0
"""How long both ranks together may take, imports and compiling included."""


def launch(program: str, folder: Path, *launcher: str) -> subprocess.CompletedProcess[str]:
    """Run ``program``, a source text, on two ranks; its output goes to the result."""
    path = folder / "program.py"
    path.write_text(program)
    launcher = launcher or ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    command = [sys.executable, "-m", *launcher, str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder
    )


def results(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """What the ranks have printed as a line of JSON after ``RESULT``, in no order."""
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    return [json.loads(line.partition("RESULT ")[2]) for line in lines if "RESULT " in line]
