"""A script on the device, by the command and the setting that compile it for a target."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, torch
x = torch.ones(4, 4).to("tpu")
for _ in range(int(sys.argv[1])):
    y = (x @ x).sum().item()
print("sum", y)
"""


def run(arguments: list[str], seconds: int, **settings: str) -> subprocess.CompletedProcess[str]:
    """What a Python with these arguments and settings says, within so many seconds."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, timeout=seconds, check=False, env=os.environ | settings,
    )  # fmt: skip


def check_command(target: str, tmp_path: Path) -> str:
    """What ``fuse aot`` prints of the script; its pack is imported by another cache."""
    script, pack = tmp_path / "train.py", tmp_path / "pack.zip"
    script.write_text(SCRIPT)
    command = ["-m", "fuse.commands.cli"]
    found = run(
        [*command, "aot", "--target", target, "--pack", str(pack), str(script), "4"],
        500,
        FUSE_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert found.returncode == 0, found.stderr
    assert "sum 64.0" in found.stdout
    assert "failures  none" in found.stdout
    imported = [*command, "cache", "import", str(pack)]
    taken = run(imported, 200, FUSE_CACHE_DIR=str(tmp_path / "other"))
    assert taken.returncode == 0, taken.stderr
    assert "entries" in taken.stdout
    return found.stdout


def check_setting(target: str, tmp_path: Path) -> str:
    """What ``FUSE_TARGET`` says on the standard error at the script's end."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    found = run([str(script), "3"], 500, FUSE_TARGET=target)
    assert found.stdout == "sum 64.0\n"
    assert "0 refused" in found.stderr
    return found.stderr
