"""Leaves of the trees that kernels are called with: tensors, numbers, and what is static."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import jax
import numpy as np
import torch

from fuse.backends.xla.canonical import content
from fuse.kernels.host import to_tensor

_NUMBERS: Final = {bool: torch.bool, int: torch.int64, float: torch.float64}


def gradients_like(given: object, made: Any) -> list[Any]:
    """A gradient's leaves, as many as the argument has; none was made of a ``None``."""
    count = len(jax.tree.leaves(given))
    return [None] * count if made is None else jax.tree.leaves(made, is_leaf=lambda x: x is None)


def hashable(options: dict[str, Any]) -> Hashable:
    """Static values as a key: 1, 1.0 and True are told apart; equal in every process."""
    items = ((k, tuple(v) if isinstance(v, list) else v) for k, v in sorted(options.items()))
    found = tuple((name, type(value), value) for name, value in items)
    try:
        hash(found)
    except TypeError:
        return content(found)
    return found


def has_tensor(value: object) -> bool:
    """Whether a tree holds a tensor or an array of JAX."""
    return any(isinstance(leaf, (torch.Tensor, jax.Array)) for leaf in jax.tree.leaves(value))


def placed(leaf: object, like: torch.Tensor) -> Any:
    """Arrays of NumPy and JAX among tensors, on the tensors' device."""
    if isinstance(leaf, (np.ndarray, jax.Array)):
        return to_tensor(np.asarray(leaf)).to(like.device)
    return leaf


def kind_of_leaf(leaf: object) -> Hashable:
    """What of a leaf another program is made for: its being a tensor or number, or its value."""
    if isinstance(leaf, torch.Tensor):
        return "tensor"
    if type(leaf) in _NUMBERS:
        return type(leaf).__name__
    return hashable({"static": leaf})


def is_array(leaf: object) -> bool:
    """Whether the function is traced with it."""
    return isinstance(leaf, torch.Tensor) or type(leaf) in _NUMBERS


def as_tensor(leaf: object) -> torch.Tensor:
    """A number as a tensor of no dimensions, in Python's own precision."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    return torch.tensor(leaf, dtype=_NUMBERS[type(leaf)])
