"""What memory that ran out is raised as."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuse.engine.failures import failure
from fuse.errors import ExecutionError


class Full:
    """As much of a backend as an error is made of."""

    def __init__(self, used: int | None, full: bool = True) -> None:
        self.used, self.full = used, full

    def ran_out(self, error: BaseException) -> bool:
        return self.full

    def memory_in_use(self, device: int) -> int | None:
        return self.used

    def memory_bytes(self, device: int) -> int:
        return 80 << 30


@pytest.mark.parametrize(
    ("said", "used", "figures"),
    [
        ("trying to allocate 8589934592 bytes.", 1 << 30,
         "tried to allocate 8.00 GiB; 1.00 GiB of 80.00 GiB are in use: "),
        ("trying to allocate 4.50GiB.", None, "tried to allocate 4.50 GiB: "),
        ("Failed to allocate request for 2 buffers", 5, "5 bytes of 80.00 GiB are in use: "),
        ("no more", None, ""),
    ],
)  # fmt: skip
def test_it_has_cudas_figures(said: str, used: int | None, figures: str) -> None:
    backend: Any = Full(used)
    error = failure(backend, "a chunk failed", RuntimeError(f"RESOURCE_EXHAUSTED: {said}"))
    assert isinstance(error, torch.OutOfMemoryError)
    assert str(error) == f"tpu out of memory: {figures}a chunk failed"


def test_another_failure_is_none_of_memory() -> None:
    backend: Any = Full(5, full=False)
    error = failure(backend, "a chunk failed", RuntimeError("allocate 3 bytes"))
    assert type(error) is ExecutionError and str(error) == "a chunk failed"
