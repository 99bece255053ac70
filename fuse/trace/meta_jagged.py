"""Shape inference for sequences that lie behind one another.

PyTorch infers one of the two conversions on meta tensors, and on fake ones alone the other.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


def _to_jagged(
    dense: torch.Tensor, offsets: list[torch.Tensor], total_L: int | None = None
) -> torch.Tensor:
    if len(offsets) != 1:
        raise RuntimeError(f"only one jagged dim is supported, got {len(offsets)} offsets")
    if dense.dim() < 2 or dense.shape[0] != offsets[0].shape[0] - 1:
        raise RuntimeError(f"no batch of sequences for {list(offsets[0].shape)} offsets")
    if total_L is None:
        raise RuntimeError("the number of rows depends on the data")
    return dense.new_empty((total_L, *dense.shape[2:]))


TABLE: dict[str, Callable[..., object]] = {"_padded_dense_to_jagged_forward": _to_jagged}
