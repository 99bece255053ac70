"""The groups' C++: built at the first group, loaded once a process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from fuse.native.build import Library, load_module

if TYPE_CHECKING:
    from fuse.distributed._native import Native

LIBRARY = Library(
    label="the process group",
    sources=Path(__file__).parent / "csrc",
    units=("transport", "collectives", "process_group"),
    links=("torch_python", "torch_cpu", "torch", "c10"),
)


def load() -> Native:
    """The library's module, built first where no build of it exists."""
    return cast("Native", load_module("fuse.distributed._native", LIBRARY))
