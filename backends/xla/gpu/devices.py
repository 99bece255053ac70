"""GPUs that are targets, and what is published of each: peaks, sizes, and how a core is built.

The vendor's tables give peaks with structured sparsity from the H100 on; half of these are the ones
here. Figures of a board of eight are an eighth here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fuse.backends.estimates import Machine

KIB: Final = 1 << 10
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Core:
    """A streaming multiprocessor of a compute capability.

    From the table of technical specifications in the CUDA programming guide,
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities; the number of
    float32 units from the white papers that ``Model`` names.

    Attributes:
        capability: major and minor.
        accelerated: whether the compiler may use what only this capability has, as in ``sm_90a``.
        units: float32 multiply-adds a cycle.
        shared: bytes of shared memory.
        shared_by_block: bytes of it that one block can have.
    """

    capability: tuple[int, int]
    accelerated: bool
    units: int
    shared: int
    shared_by_block: int


AMPERE: Final = Core((8, 0), False, 64, 164 * KIB, 163 * KIB)
HOPPER: Final = Core((9, 0), True, 128, 228 * KIB, 227 * KIB)
BLACKWELL: Final = Core((10, 0), True, 128, 228 * KIB, 227 * KIB)


@dataclass(frozen=True, slots=True)
class Model:
    """A GPU as it is sold.

    Attributes:
        machine: its peaks, with the page that has them.
        full_name: as CUDA's driver names it, and so JAX on its host.
        core, cores: what it is made of.
        clock: cycles a second at its highest.
        cache: bytes of its second-level cache.
        sources: where the last three are published.
    """

    machine: Machine
    full_name: str
    core: Core
    cores: int
    clock: float
    cache: int
    sources: str


_SITE: Final = "https://www.nvidia.com/en-us/data-center/"
_PAPERS: Final = "https://resources.nvidia.com/en-us-tensor-core/"
_HOPPER_PAPER: Final = f"{_PAPERS}gtc22-whitepaper-hopper"


def _machine(
    name: str, bandwidth: float, memory: float, peaks: dict[str, float], page: str
) -> Machine:
    """``peaks`` are of products by dtype; "vector" and "vector64" are those of other units."""
    return Machine(name, peaks["bfloat16"], bandwidth, int(memory), 0.0, _SITE + page, peaks=peaks)


_A100: Final = {
    "bfloat16": 312e12,
    "tfloat32": 156e12,
    "float32": 19.5e12,
    "float64": 19.5e12,
    "int8": 624e12,
    "vector": 19.5e12,
    "vector64": 9.7e12,
}
_H100: Final = {
    "bfloat16": 1979e12 / 2,
    "tfloat32": 989e12 / 2,
    "float32": 67e12,
    "float64": 67e12,
    "int8": 3958e12 / 2,
    "vector": 67e12,
    "vector64": 34e12,
}
_B200: Final = {
    "bfloat16": 36e15 / 8 / 2,
    "tfloat32": 18e15 / 8 / 2,
    "float32": 600e12 / 8,
    "float64": 296e12 / 8,
    "int8": 72e15 / 8 / 2,
    "vector": 600e12 / 8,
    "vector64": 296e12 / 8,
}

MODELS: Final = {
    model.machine.name: model
    for model in (
        Model(
            _machine("a100", 2039e9, 80e9, _A100, "a100/"),
            "NVIDIA A100-SXM4-80GB",
            AMPERE,
            108,
            1.41e9,
            40 * MIB,
            "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-"
            "architecture-whitepaper.pdf",
        ),
        # The clock is the one at which 132 cores have the published peak of float32.
        Model(
            _machine("h100", 3350e9, 80e9, _H100, "h100/"),
            "NVIDIA H100 80GB HBM3",
            HOPPER,
            132,
            1.98e9,
            50 * MIB,
            _HOPPER_PAPER,
        ),
        Model(
            _machine("h200", 4800e9, 141e9, _H100, "h200/"),
            "NVIDIA H200",
            HOPPER,
            132,
            1.98e9,
            50 * MIB,
            _HOPPER_PAPER,
        ),
        # Its cores, clock and cache are on no page of the vendor's: the driver says them, and
        # XLA's repository has what it says.
        Model(
            _machine("b200", 62e12 / 8, 1440e9 / 8, _B200, "hgx/"),
            "NVIDIA B200",
            BLACKWELL,
            148,
            1.965e9,
            132_644_864,
            "https://github.com/openxla/xla, xla/backends/gpu/target_config/specs/b200.txtpb",
        ),
    )
}
"""By name. Each is the module with the vendor's own connector (SXM), its largest memory."""
