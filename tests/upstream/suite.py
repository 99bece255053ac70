"""What the runner has to know of a suite of somebody else's tests."""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.upstream.record import Log

ROOT: Final = Path(__file__).resolve().parents[2]
LANES: Final[dict[str, dict[str, str]]] = {
    "cpu": {},
    "default": {},
    "compiled": {"FUSE_TIER": "compiled"},
    "accelerator": {"FUSE_BACKEND": "tests.accelerator:create"},
}
"""Settings of each. The CPU comes first: only what passes there is asked of the device."""
NAMES: Final = ("pytorch", "transformers", "libraries")

Choose = Callable[[Collection[str]], list[str]]
"""Of the names of a file's tests, those that are to be run."""
Run = Callable[[Path, str, str, Log, Choose], None]
"""``run(folder, file, device, log, choose)`` a file's tests, and note each begin and end."""


@dataclass(frozen=True)
class Reasons:
    """Why tests that pass on the CPU need not pass on the device.

    A reason holds for tests by name, ``file:Class.test`` with the name that the test has on the
    CPU, in the patterns of a shell; or for whatever fails with a text, in regular expressions.
    """

    texts: Mapping[str, tuple[str, ...]]
    tests: Mapping[str, tuple[str, ...]]
    outside: tuple[str, ...]
    """How the reasons begin that are no fault of the device's."""

    def by_name(self, name: str) -> str | None:
        """Why ``file:Class.test`` need not pass."""
        for reason, patterns in self.tests.items():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                return reason
        return None

    def by_text(self, text: str) -> str | None:
        """Why what failed with this traceback need not pass."""
        for reason, expressions in self.texts.items():
            if any(re.search(expression, text) for expression in expressions):
                return reason
        return None


@dataclass(frozen=True)
class Suite:
    """Test files, or what stands for one, and how they are told about the device."""

    name: str
    files: tuple[str, ...]
    run: Run
    reasons: Reasons
    results: Path
    page: Path
    """Written anew by each run."""
    head: tuple[str, ...]
    """The page's first lines, before the counts."""
    first_column: str = "file"
    settings: Callable[[str, str], Mapping[str, str]] = field(default=lambda file, device: {})
    """Variables of a file's process, whose device is ``"cpu"`` or ``"tpu"``."""
    lanes: Callable[[str], tuple[str, ...]] = field(
        default=lambda file: ("cpu", "default", "compiled")
    )
    """The lanes in which a file is run."""
    accelerators: bool = False
    """Whether the device is asked as well what the CPU skips."""
    apart: tuple[str, ...] = ()
    """Files that are reported by themselves, since nobody looked at them before the run."""


def suite(name: str) -> Suite:
    """The suite of that name, one of ``NAMES``. Its own dependencies are imported here."""
    found: Suite = importlib.import_module(f"tests.upstream.{name}.suite").SUITE
    return found


def device_of(lane: str) -> str:
    """The device on which a lane runs."""
    return "cpu" if lane == "cpu" else "tpu"
