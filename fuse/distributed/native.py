"""The groups' C++: built at the first group, loaded once a process."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from fuse.native.build import Library, load_module

LIBRARY = Library(
    label="the process group",
    sources=Path(__file__).parent / "csrc",
    units=("distributed.cpp",),
    links=("torch_python", "torch_cpu", "torch", "c10"),
)


def load() -> ModuleType:
    """The library's module, built first where no build of it exists."""
    return load_module("fuse.distributed._native", LIBRARY)
