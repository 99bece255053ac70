"""How much sooner a second process reaches its second step: cold cache against warm cache."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 3
WANTED = 4.0
TIMES = ("from first use", "cores from first use", "from process start")


def start(cache: Path, mode: str = "on") -> dict[str, Any]:
    """One process of ``bench.start`` with this disk cache."""
    started = {"FUSE_CACHE_DIR": str(cache), "STARTED": str(time.time()), "FUSE_CACHE": mode}
    # As on a user's machine, where Python keeps the sources that it has compiled.
    started["PYTHONDONTWRITEBYTECODE"] = ""
    done = subprocess.run(
        [sys.executable, "-m", "bench.start"],
        cwd=ROOT,
        env=os.environ | started,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def carried(full: Path, at: Path) -> Path:
    """An empty cache that has taken a bundle of ``full``, as another machine does."""
    bundle, empty = at / "bundle.zip", at / "imported"
    for cache, arguments in ((full, ("export", bundle)), (empty, ("import", bundle))):
        subprocess.run(
            [sys.executable, "-m", "fuse.commands.cli", "cache", *map(str, arguments)],
            cwd=ROOT,
            env=os.environ | {"FUSE_CACHE_DIR": str(cache), "FUSE_CACHE": "on"},
            timeout=600,
            check=True,
        )
    return empty


def test_warm_start(
    tmp_path: Path, results: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path / "unmeasured")  # builds the native core, fills the operating system's caches
    cold, warm = [], []
    for number in range(ROUNDS):  # interleaved, so that noise hits both alike
        cold.append(start(tmp_path / f"cache{number}"))
        warm.append(start(tmp_path / f"cache{number}"))
    packed = start(carried(tmp_path / "cache0", tmp_path), "only")
    assert all(one["compiles"] > 0 for one in cold)
    assert all(one["compiles"] == 0 for one in [*warm, packed])
    assert len({tuple(one["losses"]) for one in [*cold, *warm, packed]}) == 1
    found: dict[str, Any] = {}
    for name in TIMES:
        first = statistics.median(one[name] for one in cold)
        second = statistics.median(one[name] for one in warm)
        found[name] = {"cold": first, "warm": second, "times sooner": first / second}
    results["warm start"] = {"start": found}
    with capsys.disabled():
        print("\nto the end of the second training step of the character GPT, in seconds")
        for name, row in found.items():
            print(f"{name:24s}" + "".join(f"{key} {value:6.2f}   " for key, value in row.items()))
    assert found["from first use"]["times sooner"] >= WANTED
