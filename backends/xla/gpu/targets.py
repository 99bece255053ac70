"""GPUs as targets, by name: ``h100`` is one, ``h100:8`` are eight of one host.

What a chunk is compiled for is always one of them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from dataclasses import dataclass
from typing import ClassVar, Final, final

from fuse.backends.estimates import Machine
from fuse.backends.xla.gpu.devices import MODELS, Model
from fuse.backends.xla.gpu.platform import GpuPlatform
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.targets.described import Described
from fuse.errors import ConfigError, describe

CUDA: Final = {"13": "13.0.0", "12": "12.8.0"}
"""The major versions of CUDA that JAX has a plugin for, newest first, and what it is built with."""
CUDNN: Final = "9.8.0"
"""The version that is described where its package is not installed."""
MOST: Final = 8
"""GPUs of one host."""
_NAME = re.compile(r"(?P<model>[a-z0-9]+)(:(?P<count>\d))?")


@final
@dataclass(frozen=True)
class GpuName(Described):
    """A target's name, taken apart."""

    text: str
    model: Model
    count: int

    worker: ClassVar[str] = "fuse.backends.xla.gpu.worker"
    lowered_for: ClassVar[str] = "cuda"
    kind: ClassVar[str] = "GPU"

    @property
    def machine(self) -> Machine:  # noqa: D102
        return self.model.machine

    def platform(self) -> Platform:  # noqa: D102
        return GpuPlatform(self.model.core.capability)

    def compiler(self) -> str:  # noqa: D102
        found = plugin("gpu")
        if not found:
            raise ConfigError(
                describe(
                    "compiling for a GPU needs JAX's plugin for CUDA, which is not installed",
                    hint="pip install 'torch-fuse[cuda13]'; no GPU is needed",
                )
            )
        return f"{found}, cuDNN {cudnn()}"

    def topology(self) -> str:
        """The model, and how many."""
        return f"{self.machine.name}:{self.count}"

    def environment(self) -> dict[str, str]:
        """What keeps CUDA from finding a GPU of this machine's, which is another one."""
        return {"CUDA_VISIBLE_DEVICES": ""}


def find(text: str) -> GpuName | None:
    """The target called ``text``; ``None`` where no GPU here is called so."""
    found = _NAME.fullmatch(text)
    model = MODELS.get(found["model"]) if found else None
    count = int(found["count"] or 1) if found else 0
    if model is None or not 1 <= count <= MOST:
        return None
    return GpuName(text, model, count)


@functools.cache
def plugin(platform: str) -> str:
    """JAX's plugin for a GPU and its version; empty on another platform or without it.

    The same where there is a GPU and where there is none, which XLA's client says otherwise.
    """
    if platform != "gpu":
        return ""
    for major in CUDA:
        version = _version(f"jax-cuda{major}-pjrt")
        if version and _version(f"jax-cuda{major}-plugin"):
            return f"jax-cuda{major}-pjrt {version}"
    return ""


def cuda() -> str:
    """The version of CUDA that the plugin is for."""
    return next((CUDA[major] for major in CUDA if f"cuda{major}" in plugin("gpu")), "")


def cudnn() -> str:
    """The version of cuDNN beside it, three numbers."""
    major = cuda().partition(".")[0]
    numbers = (_version(f"nvidia-cudnn-cu{major}") or CUDNN).split(".")
    return ".".join((numbers + ["0", "0"])[:3])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
