"""Shape inference of nearest resampling, where PyTorch's own fails.

For a batch of none, which the kernels take, PyTorch's inference raises a ``TypeError``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import _meta_registrations as inference


def _for_any_batch(own: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def infer(self: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        if self.dim() == 0 or self.shape[0] or not math.prod(self.shape[1:]):
            return own(self, *arguments, **options)
        one = own(self.new_empty((1, *self.shape[1:])), *arguments, **options)
        return self.new_empty((0, *one.shape[1:]))

    return infer


TABLE: dict[str, Callable[..., object]] = {
    f"{prefix}{dims}d": _for_any_batch(getattr(inference, f"upsample_nearest{dims}d"))
    for prefix in ("upsample_nearest", "_upsample_nearest_exact")
    for dims in (1, 2)
}
"""Overload -> inference; these stand in for PyTorch's own."""
