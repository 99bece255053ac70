"""The targets by name: every make of device that there is a compiler of."""

from __future__ import annotations

from fuse.backends.xla.gpu import targets as gpus
from fuse.backends.xla.gpu.devices import MODELS
from fuse.backends.xla.targets.described import Described
from fuse.backends.xla.tpu import targets as tpus
from fuse.errors import ConfigError, describe


def parse(text: str) -> Described:
    """The target called ``text``; raises ``ConfigError`` that lists the known ones."""
    found: Described | None = tpus.find(text) or gpus.find(text)
    if found is None:
        raise ConfigError(unknown(text))
    return found


def unknown(text: str, why: str = "") -> str:
    """The text of the error about a target that there is not."""
    return describe(
        f"unknown target {text!r}{': ' + why if why else ''}: the known ones are "
        f"{', '.join([*tpus.GENERATIONS, *MODELS])}",
        hint="name one of them (one chip), or several: a topology such as v5e:4x4, or h100:8",
    )
