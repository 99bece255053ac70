"""Draws of a Dirichlet distribution: gamma draws over their sum."""

from __future__ import annotations

import torch
from torch import Tensor

from fuse.device.composites.registry import kernel


@kernel("_sample_dirichlet")
def _sample_dirichlet(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Shares of each row, within (0, 1): a gamma's draw may be too small for the dtype."""
    drawn = torch._standard_gamma(self.double(), generator=generator)
    shares = (drawn / drawn.sum(-1, keepdim=True)).to(self.dtype)
    limits = torch.finfo(self.dtype)
    return shares.clamp_(limits.tiny, 1 - limits.eps / 2)
