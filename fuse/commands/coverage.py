"""``fuse coverage``: compares operators with PyTorch's CPU.

The suite is part of the tests, so the command runs in a checkout of the project.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

SUITE = Path("tests/coverage/command.py")


def main(arguments: Sequence[str]) -> int:
    """Run the suite of the checkout in the current directory; 1 where there is none."""
    if not SUITE.is_file():
        print(
            f"fuse coverage runs the tests of a checkout, and there is no {SUITE} here.\n"
            "  hint: clone the project, and run it there",
            file=sys.stderr,
        )
        return 1
    sys.path.insert(0, str(Path.cwd()))
    return int(importlib.import_module("tests.coverage.command").main(arguments))
