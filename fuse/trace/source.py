"""The user's source line behind an operation."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from types import FrameType

import torch


def _folder(package: str) -> str:
    """Where a package is, found without importing it."""
    found = importlib.util.find_spec(package)
    places = found.submodule_search_locations if found is not None else None
    return os.path.abspath(places[0]) + os.sep if places else os.sep


# Installed for development, the backends do not lie within fuse.
_OWN = tuple(map(_folder, ("torch", "fuse", "fuse.backends")))


def is_users(filename: str) -> bool:
    """Whether a file is neither PyTorch's nor fuse's own."""
    return not filename.startswith(_OWN) and not filename.startswith("<")


_given = threading.local()


class in_place_of_frames:  # noqa: N801  # a function to who calls it
    """Calls of this thread in the block come from ``line``: those of a compiled graph, whose frames
    are not the user's. Empty: from the frames after all. Some 0.5 us."""

    __slots__ = ("_before", "_line")

    def __init__(self, line: str) -> None:
        self._line, self._before = line, ""

    def __enter__(self) -> None:
        self._before = getattr(_given, "line", "")
        _given.line = self._line

    def __exit__(self, *_: object) -> None:
        _given.line = self._before


def _is_users(frame: FrameType) -> bool:
    return is_users(frame.f_code.co_filename)


def user_line() -> str:
    """``file:line`` of the innermost frame outside torch and fuse, or what is known instead.

    Backward operations have no Python frame of the user's: they are named by the autograd
    node that runs them. Called on the first sight of an operation only.
    """
    given: str = getattr(_given, "line", "")
    if given:
        return given
    frame = sys._getframe(1)
    while frame is not None:
        if _is_users(frame):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    node = torch._C._current_autograd_node()
    return f"backward ({node.name()})" if node is not None else ""


def call_path() -> tuple[tuple[int, int], ...]:
    """Where in its code every frame is, from the innermost to the one that ``user_line`` names.

    Equal where the program is at the same place again, in torch's own code as well. Means
    something within one process only.
    """
    frame: FrameType | None = sys._getframe(1)
    path = []
    while frame is not None:
        path.append((id(frame.f_code), frame.f_lasti))
        if _is_users(frame):
            break
        frame = frame.f_back
    return tuple(path)
