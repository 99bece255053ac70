"""Runs a program eagerly on the CPU and compiled on the device, and compares all it returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuse
from tests.programs.harness import CPU, DEVICE, assert_same, run

Compile = Callable[[Any], Any]
Program = Callable[[torch.device, Compile], Any]


def compare_with_cpu(
    program: Program,
    runs: int = 2,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    fallbacks: frozenset[str] = frozenset(),
    **options: Any,
) -> None:
    """Assert that ``program(device, compile)`` gives on the device, compiled, the CPU's results.

    On the CPU ``compile`` does nothing. ``options`` are those of ``torch.compile``. Exactly the
    operators ``fallbacks`` may run on the host.
    """
    expected = run(lambda device: program(device, lambda function: function), CPU)
    before = Counter(fuse.stats()["host_fallbacks"])

    def compiled(function: Any) -> Any:
        return torch.compile(function, backend="tpu", **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSE_HOST_FALLBACK", "silent" if fallbacks else "error")
        for number in range(runs):
            found = run(lambda device: program(device, compiled), DEVICE)
            assert_same(found, expected, rtol, atol, f"run {number + 1}")
    assert set(Counter(fuse.stats()["host_fallbacks"]) - before) == fallbacks


def calls_of(function: Callable[[], Any]) -> dict[str, Any]:
    """What ``function`` made of compiled graphs: the counters of ``fuse.stats()["compiled"]``."""
    fuse.reset_stats()
    function()
    found: dict[str, Any] = fuse.stats()["compiled"]
    return found
