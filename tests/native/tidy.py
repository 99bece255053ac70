"""clang-tidy over the C++ that is built here: ``make tidy``, or with the files to look at.

    python -m tests.native.tidy [FILE ...]

Each unit is read as it is compiled, with what it includes. Ends with 1 where something is found.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuse.backends.xla.cpu.kernels import KERNELS
from fuse.device.core import CORE
from fuse.distributed.native import LIBRARY
from fuse.native.build import FLAGS, HEADERS, Library, source_of, system_headers

ROOT = Path(__file__).parents[2]
TIDY = Path(sys.executable).with_name("clang-tidy")
CPP = ROOT / "tests/cpp"
"""Tests without PyTorch, which has no part in them."""


def command(unit: Path, folders: list[Path], packages: tuple[str, ...]) -> list[str]:
    """How one unit is looked at."""
    flags = [flag for flag in FLAGS if flag != "-O2"]
    flags += [f"-I{folder}" for folder in folders] + system_headers(packages)
    options = ["--quiet", "--warnings-as-errors=*", f"--config-file={ROOT / '.clang-tidy'}"]
    return [str(TIDY), *options, str(unit), "--", *flags]


def of_library(library: Library, made: Path) -> Iterator[tuple[Path, list[str]]]:
    for name in library.units:
        unit = source_of(library, name, made)
        named = library.sources / name
        yield named, command(unit, [library.sources, HEADERS], library.packages)


def units(made: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every unit and its command; the units of folders are written to the folder ``made``."""
    for library in (CORE, LIBRARY, KERNELS):
        yield from of_library(library, made)
    for unit in sorted(CPP.glob("*.cpp")):
        yield unit, command(unit, [CPP, CORE.sources, LIBRARY.sources, HEADERS], ())


def main(wanted: list[str]) -> int:
    """Look at each unit, or at those named; two at once."""

    def run(line: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(line, capture_output=True, text=True, check=False)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        every = units(Path(folder))
        chosen = [
            line for path, line in every if not wanted or str(path.relative_to(ROOT)) in wanted
        ]
        failed = 0
        for one in pool.map(run, chosen):
            failed += one.returncode != 0
            print(one.stdout, end="", flush=True)
            if one.returncode != 0 and not one.stdout:
                sys.stderr.write(one.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
