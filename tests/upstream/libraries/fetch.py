"""Fetches the source distributions of the libraries whose tests are run, at their pinned versions.

python -m tests.upstream.libraries.fetch FOLDER CONSTRAINTS
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from tests.upstream.libraries.libraries import LIBRARIES


def pinned(constraints: Path) -> dict[str, str]:
    """Versions by names as folders have them, with ``_``."""
    lines = [line.partition("==") for line in constraints.read_text().splitlines() if "==" in line]
    return {name.strip().lower().replace("-", "_"): version.strip() for name, _, version in lines}


def fetch(name: str, version: str, folder: Path) -> None:
    """Download and unpack one, unless it is there."""
    if [*folder.glob(f"{name}-[0-9]*[0-9]")]:
        return
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--no-binary", name, "--dest", str(folder), f"{name}=={version}"),
        ],
        check=True,
    )
    (archive,) = folder.glob(f"{name}-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")


def main(folder: str, constraints: str) -> None:
    """Fetch those that are not installed with their tests."""
    versions = pinned(Path(constraints))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES:
        if library.unpacked:
            fetch(library.name, versions[library.name], Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
