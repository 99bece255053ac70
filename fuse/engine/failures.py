"""What a failure of the backend is raised as."""

from __future__ import annotations

import re
from typing import Final

import torch

from fuse.backends.base import Backend
from fuse.errors import ExecutionError, in_units

_ASKED: Final = re.compile(r"allocat\w* (\d+(?:\.\d+)?) ?(bytes|[KMGT]iB)")
"""What XLA says that it could not have: ``Out of memory while trying to allocate 4.00GiB``."""
_UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def failure(backend: Backend, text: str, error: Exception) -> Exception:
    """``ExecutionError``, or PyTorch's own error where the device's memory ran out."""
    if backend.ran_out(error):
        return torch.OutOfMemoryError(f"tpu out of memory: {_figures(backend, error)}{text}")
    return ExecutionError(text)


def _figures(backend: Backend, error: Exception) -> str:
    """How much was asked for, and how much there is, as CUDA says it; what is not known is not."""
    asked, used = _ASKED.search(str(error)), backend.memory_in_use(0)
    said = []
    if asked is not None:
        said.append(f"tried to allocate {in_units(int(float(asked[1]) * _UNITS[asked[2]]))}")
    if used is not None:
        said.append(f"{in_units(used)} of {in_units(backend.memory_bytes(0))} are in use")
    return "; ".join(said) + ": " if said else ""
