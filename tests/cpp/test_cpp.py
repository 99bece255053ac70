"""What of the C++ needs no PyTorch, by itself: compiled here with its tests, and run one by one."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fuse import config

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CORE = ROOT / "fuse/device/csrc"
DISTRIBUTED = ROOT / "fuse/distributed/csrc"
TRANSPORT = DISTRIBUTED / "transport"
TESTED = [
    *sorted((CORE / "tiering").glob("*.cpp")),
    *map(TRANSPORT.joinpath, ("process.cpp", "within.cpp")),
]
FILES = sorted(HERE.glob("*.cpp"))
OPTIONS = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
INCLUDED = [f"-I{folder}" for folder in (HERE, CORE, DISTRIBUTED)]
TESTS = [name for file in FILES for name in re.findall(r"^TEST\((\w+)\)", file.read_text(), re.M)]


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cpp")
    objects = {file: folder / f"{file.stem}.o" for file in FILES + TESTED}
    compiler = [config.compiler(), *OPTIONS]
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(run, [*compiler, *INCLUDED, "-c", str(file), "-o", str(made)])
            for file, made in objects.items()
        ]
    for job in jobs:
        job.result()
    run([*compiler, *map(str, objects.values()), "-o", str(folder / "tests")])
    return folder / "tests"


def test_every_test_is_run(program: Path) -> None:
    listed = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert sorted(listed.stdout.split()) == sorted(TESTS)
    assert len(set(TESTS)) == len(TESTS) > 40


def test_a_name_that_is_none_fails(program: Path) -> None:
    assert subprocess.run([program, "no_test"], timeout=60, check=False).returncode == 1


@pytest.mark.parametrize("name", TESTS)
def test_cpp(name: str, program: Path) -> None:
    done = subprocess.run([program, name], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
