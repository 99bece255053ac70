"""The policy of tiers by itself: programs of simulated times, in C++, compiled here and run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fuse import config

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = [HERE / "policy_test.cpp", ROOT / "fuse/device/csrc/tiering/policy.cpp"]
INCLUDED = ["-I", str(ROOT / "fuse/device/csrc"), "-I", str(HERE)]
TESTS = re.findall(r"TEST\((\w+)\),", SOURCES[0].read_text())


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("tiering") / "policy_test"
    options = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", *INCLUDED]
    done = subprocess.run(
        [config.compiler(), *options, *map(str, SOURCES), "-o", str(built)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return built


def test_every_program_is_run(program: Path) -> None:
    listed = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert listed.stdout.split() == TESTS


@pytest.mark.parametrize("name", TESTS)
def test_policy(name: str, program: Path) -> None:
    done = subprocess.run([program, name], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
