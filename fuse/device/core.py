"""The device's native core: where its C++ is, and how it is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fuse.native.build import Library, load_module

if TYPE_CHECKING:
    from fuse.device._core import Core

CORE = Library(
    label="the native core",
    sources=Path(__file__).parent / "csrc",
    units=(
        *("runtime", "tiering", "tracing", "cpu_exec", "device", "aten", "bindings"),
        *("aten/autocast.cpp", "cpu_exec/typed_kernels.cpp"),
    ),
    links=("torch_python", "torch_cpu", "c10"),
)


@contextlib.contextmanager
def being_built() -> Iterator[None]:
    """Build the core during the block, where there is no build of it; ends when both have."""
    if CORE.file().exists():
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(CORE.built)
        yield
    building.result()


def load() -> Core:
    """The native core's module, built first where no build of it exists."""
    return cast("Core", load_module("fuse.device._core", CORE))
