"""Installs a wheel where there is no compiler, and uses it: ``python -m tests.native.wheel FILE``.

PyTorch, JAX and the rest come from the environment that made the wheel, by a path file: they are
what its native libraries were built for.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAM = """
import torch
x = torch.randn(64, 64, device="tpu", requires_grad=True)
(x @ x).relu().sum().backward()
expected = x.detach().cpu().requires_grad_()
(expected @ expected).relu().sum().backward()
torch.testing.assert_close(x.grad.cpu(), expected.grad)
print("computes")
"""


def main() -> int:
    """0 if the wheel holds what it should, and a program runs from it."""
    parser = argparse.ArgumentParser(prog="python -m tests.native.wheel", description=__doc__)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    names = zipfile.ZipFile(wheel).namelist()
    assert sum(name.startswith("fuse/native/shipped/") for name in names) == 3, names
    assert any(name.endswith("licenses/LICENSE") for name in names), "no LICENSE"
    assert any(name.endswith("licenses/NOTICE") for name in names), "no NOTICE"
    assert not any(name.split("/")[0] in ("tests", "bench") for name in names), "tests inside"
    with tempfile.TemporaryDirectory() as folder:
        check_installed(wheel, Path(folder))
    return 0


def check_installed(wheel: Path, folder: Path) -> None:
    """Run a program, ``fuse doctor`` and a short ``fuse demo`` from the wheel, without g++."""
    venv.create(folder / "env", with_pip=True)
    python = folder / "env/bin/python"
    site = next((folder / "env/lib").glob("python*/site-packages"))
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], folder, os.environ)
    # After the environment's own folder, so that the package is the wheel's.
    site.joinpath("others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    alone = {
        "PATH": f"{folder}/env/bin",
        "HOME": str(folder),
        "CXX": "g++",
        "JAX_PLATFORMS": "cpu",
    }
    said = run([python, "-c", PROGRAM], folder, alone)
    assert "computes" in said and "building" not in said, said
    said = run([folder / "env/bin/fuse", "doctor"], folder, alone)
    assert "everything is in order" in said and "shipped" in said, said
    steps = "--digits-steps", "20", "--chargpt-steps", "20", "--output", folder
    said = run([folder / "env/bin/fuse", "demo", *steps], folder, alone)
    assert said.count("held-out loss") == 1 and "building" not in said, said
    print(f"{wheel.name}: runs without a compiler")


def run(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> str:
    """What a command prints, on both streams; shows it where the command fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
