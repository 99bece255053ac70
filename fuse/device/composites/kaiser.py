"""Kaiser's window, which PyTorch's own composition fills by a kernel of the CPU's or CUDA's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fuse.device.composites.registry import kernel


@kernel("kaiser_window")
def _kaiser_window(window_length: int, **options: Any) -> Tensor:
    return _kaiser(window_length, True, 12.0, **options)


@kernel("kaiser_window.periodic")
def _kaiser_window_periodic(window_length: int, periodic: bool, **options: Any) -> Tensor:
    return _kaiser(window_length, periodic, 12.0, **options)


@kernel("kaiser_window.beta")
def _kaiser(
    window_length: int,
    periodic: bool,
    beta: float,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """``i0(beta sqrt(1 - t**2)) / i0(beta)`` at equal steps of t from -1 to 1.

    A periodic window is the beginning of one that is longer by one.

    Raises:
        RuntimeError: PyTorch's own: no floating-point dtype, a negative length.
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point:
        raise RuntimeError(f"kaiser_window expects floating point dtypes, got: {dtype}")
    if window_length < 0:
        raise RuntimeError(
            f"kaiser_window requires non-negative window_length, got window_length={window_length}"
        )
    if window_length < 2:
        return torch.ones(window_length, dtype=dtype, device=device)
    work = torch.float64 if dtype == torch.float64 else torch.float32
    count = window_length + periodic
    half = (count - 1) / 2
    t = (torch.arange(window_length, dtype=work, device=device) - half) / half
    scale = torch.full((), beta, dtype=work, device=device)
    inside = (1 - t * t).clamp_min(0).sqrt_()
    found: Tensor = (torch.special.i0(inside * scale) / torch.special.i0(scale)).to(dtype)
    return found
