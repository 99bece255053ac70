"""What the tests of platforms' attention kernels share."""

from __future__ import annotations

from typing import Any

import torch


def tensors(case: Any, dtype: torch.dtype) -> list[torch.Tensor]:
    """Query, key, value and the output's gradient; a case begins with batch, heads and groups."""
    batch, heads, groups, queries, keys, width = case[:6]
    generator = torch.Generator().manual_seed(0)
    lengths = ((heads, queries), (groups, keys), (groups, keys), (heads, queries))
    shapes = [(batch, *pair, width) for pair in lengths]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
