"""What a failure of the backend is raised as."""

from __future__ import annotations

import torch

from fuse.backends.base import Backend
from fuse.errors import ExecutionError


def failure(backend: Backend, text: str, error: Exception) -> Exception:
    """``ExecutionError``, or PyTorch's own error where the device's memory ran out."""
    if backend.ran_out(error):
        return torch.OutOfMemoryError(f"tpu out of memory: {text}")
    return ExecutionError(text)
