"""TPUs as targets, by name: their generations, what is published of each, and topologies.

Names are those of libtpu's topologies: a generation alone is one chip of it, ``v5e:4x4`` are
sixteen. What a chunk is compiled for is always one device of the target.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from typing import ClassVar, final

from fuse.backends.estimates import Machine
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.targets.described import Described
from fuse.backends.xla.tpu.platform import TpuPlatform
from fuse.errors import ConfigError, describe


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of TPUs.

    Attributes:
        machine: peaks of one device (JAX's: both halves of a v4 or v5p chip, one of a tpu7x).
        chip: libtpu's topology of one chip.
        config: libtpu's name of the configuration in which a chip is such devices.
        accelerator: what ``TPU_ACCELERATOR_TYPE`` says on its hosts.
    """

    machine: Machine
    chip: str
    config: str
    accelerator: str


EMULATED = ("float64", "int64")
_DOCS = "https://cloud.google.com/tpu/docs/"


def _machine(
    name: str,
    flops: float,
    bandwidth: float,
    memory: float,
    matrix: tuple[int, int],
    sparse_cores: int = 0,
) -> Machine:
    """``matrix``: how many matrix units, and their width; with ``flops`` that gives the clock."""
    units, width = matrix
    clock = flops / (2 * units * width * width)
    page = _DOCS + name
    return Machine(
        name, flops, bandwidth, int(memory), clock, page, 128, 8, width, sparse_cores, EMULATED
    )


GENERATIONS = {
    "v4": Generation(_machine("v4", 275e12, 1200e9, 32e9, (8, 128)), "1x1x1", "megacore", "v4-8"),
    "v5e": Generation(
        _machine("v5e", 197e12, 819e9, 16e9, (4, 128)), "1x1", "default", "v5litepod-1"
    ),
    "v5p": Generation(
        _machine("v5p", 459e12, 2765e9, 95e9, (8, 128), 4), "1x1x1", "default", "v5p-8"
    ),
    "v6e": Generation(
        _machine("v6e", 918e12, 1640e9, 32e9, (4, 256), 2), "1x1", "default", "v6e-1"
    ),
    "tpu7x": Generation(
        _machine("tpu7x", 2307e12 / 2, 7380e9 / 2, 192e9 / 2, (4, 256), 2),
        "1x1x1",
        "default",
        "tpu7x-8",
    ),
}
"""Peaks as the vendor's page of each generation gives them, a chip; here a device. The number of
matrix units of v6e and tpu7x is the one at which libtpu's estimate of a large bfloat16 product
stays under the peak."""

_NAME = re.compile(r"(?P<generation>[a-z0-9]+)(:(?P<shape>\d+(x\d+){1,2}))?")


@final
@dataclass(frozen=True)
class TargetName(Described):
    """A target's name, taken apart: ``topology`` is what libtpu is asked for."""

    text: str
    generation: Generation
    shape: str

    worker: ClassVar[str] = "fuse.backends.xla.tpu.worker"
    lowered_for: ClassVar[str] = "tpu"
    kind: ClassVar[str] = "TPU"

    @property
    def machine(self) -> Machine:  # noqa: D102
        return self.generation.machine

    @property
    def one_chip(self) -> bool:
        """Whether the target is one chip, which is less than a host has by default."""
        return set(self.shape.split("x")) == {"1"}

    def platform(self) -> Platform:  # noqa: D102
        return TpuPlatform()

    def compiler(self) -> str:  # noqa: D102
        return f"libtpu {libtpu_version()}"

    def topology(self) -> str:
        """The generation and the shape, as libtpu's topologies are named."""
        return f"{self.generation.machine.name}:{self.shape}"

    def environment(self) -> dict[str, str]:
        """What keeps libtpu from looking for a TPU's host."""
        return {
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # there is no TPU that two processes could want
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": self.generation.accelerator,
            "TPU_WORKER_HOSTNAMES": "localhost",
        }

    def is_unknown(self, why: str) -> bool:  # noqa: D102
        return "INVALID_ARGUMENT" in why


def find(text: str) -> TargetName | None:
    """The target called ``text``; ``None`` where no generation is called so."""
    found = _NAME.fullmatch(text)
    generation = GENERATIONS.get(found["generation"]) if found else None
    if found is None or generation is None:
        return None
    return TargetName(text, generation, found["shape"] or generation.chip)


def libtpu_version() -> str:
    """The version of the package that holds the TPU's compiler.

    Raises ``ConfigError`` that says what to install where there is none.
    """
    try:
        return importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(
            describe(
                "compiling for a TPU needs libtpu, the TPU's compiler, which is not installed",
                hint="pip install 'torch-fuse[tpu]'; no TPU is needed",
            )
        ) from error
