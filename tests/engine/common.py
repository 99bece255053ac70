"""Starting the processes of these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300


def environment(cache: Path, **settings: str) -> dict[str, str]:
    """This process's environment with only the cache settings that a test asks for."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FUSE_CACHE")}
    return kept | {"FUSE_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)} | settings


def start(role: str, cache: Path, **settings: str) -> subprocess.Popen[bytes]:
    """Start a worker; its output is not buffered here, ``communicate`` reads the rest."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.engine.worker", role],
        cwd=ROOT,
        env=environment(cache, **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )


def finish(worker: subprocess.Popen[bytes]) -> tuple[dict[str, Any], str]:
    """What a worker printed at its end, and its standard error.

    Without progress lines: a busy machine compiles for longer than they wait.
    """
    output, errors = worker.communicate(timeout=SECONDS)
    assert worker.returncode == 0, errors.decode()
    found: dict[str, Any] = json.loads(output.decode().splitlines()[-1])
    lines = errors.decode().splitlines(keepends=True)
    return found, "".join(line for line in lines if not line.startswith("fuse: compiling, "))


def run(role: str, cache: Path, **settings: str) -> dict[str, Any]:
    """Run a worker to its end; it must have nothing to say on standard error."""
    found, errors = finish(start(role, cache, **settings))
    assert errors == "", errors
    return found


def command(cache: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run ``fuse cache``."""
    return subprocess.run(
        [sys.executable, "-m", "fuse.commands.cli", "cache", *arguments],
        cwd=ROOT,
        env=environment(cache, **settings),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def entries(cache: Path) -> list[Path]:
    """The files of a cache's disk tier."""
    return sorted(path for path in (cache / "entries").rglob("*") if path.is_file())
