"""The order of a library's C++ files, as their includes have it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

from fuse.native.build import Library

MOST_LINES = 400


def files_of(library: Library) -> dict[str, str]:
    """Every file of a library, by its path in ``csrc``, and its text."""
    found = sorted(path for path in library.sources.rglob("*.*") if path.suffix in (".cpp", ".h"))
    return {str(path.relative_to(library.sources)): path.read_text() for path in found}


def included_by(text: str) -> list[str]:
    """What a file of this text includes of its library; what libraries share stands in ``<>``."""
    return re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)


def violations(
    name: str,
    text: str,
    files: Mapping[str, str],
    layers: Sequence[str],
    alone: Collection[str] = (),
) -> Iterator[str]:
    """What the file includes that does not stand below it, nor beside it.

    Args:
        name: the file's path; its folder is its layer.
        text: what stands in it.
        files: of the library.
        layers: from the lowest up.
        alone: layers that know nothing but themselves.
    """
    own = Path(name).parts[0]
    for included in included_by(text):
        other = Path(included).parts[0]
        if included not in files:
            yield f"{name} includes {included}, which is not there"
        elif other != own and (own in alone or layers.index(other) > layers.index(own)):
            yield f"{name} includes {included}: {other} does not stand below {own}"


def check_no_circle(files: Mapping[str, str]) -> None:
    """Raises ``CycleError``, which names the files, where two need each other.

    A header and its .cpp count as one.
    """
    needed: dict[str, set[str]] = {}
    for name, text in files.items():
        own = str(Path(name).with_suffix(""))
        others = {str(Path(included).with_suffix("")) for included in included_by(text)}
        needed.setdefault(own, set()).update(others - {own})
    TopologicalSorter(needed).prepare()


def long_ones(files: Mapping[str, str]) -> set[str]:
    """The files of more than ``MOST_LINES`` lines."""
    return {name for name, text in files.items() if text.count("\n") > MOST_LINES}
