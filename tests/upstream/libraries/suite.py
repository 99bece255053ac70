"""Libraries' own tests as a suite: a file is a library, run by pytest with a default device."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from tests.upstream.collected import run_collected
from tests.upstream.libraries.libraries import LIBRARIES, Library
from tests.upstream.libraries.reasons import REASONS
from tests.upstream.record import Log
from tests.upstream.suite import ROOT, Choose, Suite

BY_NAME: Final = {one.name: one for one in LIBRARIES}


def unpacked(folder: Path, library: Library) -> Path:
    """Where its source distribution is."""
    if not library.unpacked:
        return folder
    (found,) = folder.glob(f"{library.name}-[0-9]*[0-9]")
    return found


def spelt_for_device(source: Path, library: Library) -> Path:
    """A copy of a source distribution whose tests name the device where they name the CPU."""
    copy = source.with_name(f"{source.name}-tpu")
    if not copy.exists():
        shutil.copytree(source, copy)
        for path in copy.rglob("*.py"):
            text = path.read_text()
            changed = text
            for expression, replacement in library.spelt.items():
                changed = re.sub(expression, replacement, changed)
            if changed != text:
                path.write_text(changed)
    return copy


def run(folder: Path, file: str, device: str, log: Log, choose: Choose) -> None:
    """Run the tests of the library ``file``."""
    library = BY_NAME[file]
    at = unpacked(folder, library)
    if device != "cpu" and library.spelt:
        at = spelt_for_device(at, library)
    if device != "cpu":
        library.before()
    run_collected(at, library.tests, device, log, choose)


def settings(file: str, device: str) -> dict[str, str]:
    """A library's variables."""
    return {
        name: device if value == "tpu" else value for name, value in BY_NAME[file].settings.items()
    }


SUITE: Final = Suite(
    "libraries",
    tuple(BY_NAME),
    run,
    reasons=REASONS,
    results=ROOT / "build" / "upstream-libraries",
    page=ROOT / "docs" / "upstream-libraries.md",
    head=(
        "# Libraries' own tests",
        "",
        "Made by `make test-libraries`; do not edit. Tests in source distributions of libraries,",
        'unmodified, with `torch.set_default_device("tpu")`. What passes on the CPU has to pass on',
        "the device.",
    ),
    first_column="library",
    settings=settings,
)
