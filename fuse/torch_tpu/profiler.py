"""``torch.tpu.profiler``: traces of the device in the form of XLA's profiler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import PathLike, fspath

import jax

from fuse.device import module


def start_trace(log_dir: str | PathLike[str]) -> None:
    """Write what runs from now on into a folder, for TensorBoard or Perfetto, by JAX's profiler.

    Raises ``RuntimeError`` where a trace is being written already.
    """
    module.synchronize()
    jax.profiler.start_trace(fspath(log_dir))


def stop_trace() -> None:
    """Wait for what runs, and close the trace."""
    module.synchronize()
    jax.profiler.stop_trace()


@contextlib.contextmanager
def trace(log_dir: str | PathLike[str]) -> Iterator[None]:
    """Both around a block."""
    start_trace(log_dir)
    try:
        yield
    finally:
        stop_trace()


def __getattr__(name: str) -> object:
    if name == "TpuProfilerConfig":
        raise AttributeError(
            "torch.tpu.profiler.TpuProfilerConfig: torch.profiler knows nothing of the device; use "
            "torch.tpu.profiler.trace(folder), or fuse.explain for one call"
        )
    raise AttributeError(f"module 'torch.tpu.profiler' has no attribute {name!r}")
