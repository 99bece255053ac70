"""The native core and the engine of a device that has started; ``fuse.device.lazy`` starts it.

What the start itself imports asks here, so that nothing imports in a circle.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import torch

from fuse.errors import FuseError, describe

if TYPE_CHECKING:
    from fuse.device._core import Core
    from fuse.engine.engine import Engine

FORKED = describe(
    "the tpu device was started before this process was forked: its tensors are the parent's",
    hint='use multiprocessing.set_start_method("spawn")',
)


@final
@dataclass(slots=True)
class Started:
    """The one device that a process starts.

    Attributes:
        core: the native core, which calls ``engine``.
        process: the one that started it.
        generators: every device's default generator.
        libraries: registrations with PyTorch, which last as long as these.
    """

    core: Core
    engine: Engine
    process: int
    generators: tuple[torch.Generator, ...] = ()
    libraries: list[object] = field(default_factory=list)


_devices: list[Started] = []
"""One, once it has started."""


def begin(core: Core, engine: Engine) -> Started:
    """From here on the device counts as started."""
    _devices.append(Started(core, engine, os.getpid()))
    return _devices[0]


def is_initialised() -> bool:
    """Whether the core is loaded in this process."""
    return bool(_devices)


def in_bad_fork() -> bool:
    """Whether this process was forked after the device had been started in its parent."""
    return bool(_devices) and os.getpid() != _devices[0].process


def device() -> Started:
    """The device; raises ``FuseError`` in a process forked from the one that started it."""
    if in_bad_fork():
        raise FuseError(FORKED)
    return _devices[0]
