"""CPU tensors as NumPy arrays and back, in every dtype that both have."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (registers bfloat16 and the float8 types with NumPy)
import numpy as np
import torch


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values, of its shape and dtype; shares its memory where it is row-major."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    raw: np.ndarray = dense.reshape(-1).view(torch.uint8).numpy()
    return raw.view(dtype).reshape(tuple(tensor.shape))


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """A CPU tensor with a copy of the array."""
    raw = torch.from_numpy(np.array(array, order="C").reshape(-1).view(np.uint8))
    return raw.view(getattr(torch, array.dtype.name)).reshape(array.shape)
