"""The ``fuse build`` command: the native libraries, built now and not at their first use."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from fuse.backends.xla import backend
from fuse.device.core import CORE
from fuse.distributed.native import LIBRARY
from fuse.errors import BuildError

LIBRARIES = {"core": CORE, **backend.LIBRARIES, "group": LIBRARY}


def main(arguments: Sequence[str]) -> int:
    """Build what has not been built yet; 1 if a build fails, else 0."""
    parser = argparse.ArgumentParser(prog="fuse build", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        choices=LIBRARIES,
        help=", ".join(f"{name}: {library.label}" for name, library in LIBRARIES.items()),
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FOLDER",
        help="also copy the builds there, as a wheel holds them: one folder a library",
    )
    options = parser.parse_args(arguments)
    folder = options.into
    for name in options.only or LIBRARIES:
        library = LIBRARIES[name]
        try:
            built = library.built()
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{library.label}: {built}")
        if folder is not None:
            target = folder / library.fit() / built.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(built, target)
    return 0
