"""Copies of a sample on another device, view for view: strides, offsets, aliases, gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map


class Transfer:
    """One copy of a sample to ``device``; what was one tensor or one storage stays one.

    A tensor's whole storage is copied, so that a view stays the same view of the same bytes.
    Sparse ones are moved as a whole.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, nest: Any) -> Any:
        """The nest with every CPU tensor, generator and device argument on ``device``."""
        return tree_map(self._leaf, nest)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.Generator):
            return torch.Generator(self.device).manual_seed(value.initial_seed())
        if isinstance(value, torch.device):
            return self.device if value.type == "cpu" else value
        return self.device.type if isinstance(value, str) and value == "cpu" else value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu":
            return tensor
        if id(tensor) not in self._tensors:
            # The original is kept, so that its id stays its own.
            self._tensors[id(tensor)] = (tensor, self._copy(tensor))
        return self._tensors[id(tensor)][1]

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach()
        if plain.layout != torch.strided:
            return plain.to(self.device).requires_grad_(tensor.requires_grad)
        conjugate, negative = plain.is_conj(), plain.is_neg()
        plain = plain.conj() if conjugate else plain
        plain = torch._neg_view(plain) if negative else plain
        key = (plain.untyped_storage()._cdata, plain.dtype)
        if key not in self._storages:
            elements = plain.untyped_storage().nbytes() // plain.element_size()
            flat = plain.as_strided((elements,), (1,), 0)
            self._storages[key] = flat.to(self.device, copy=True)
        copy = self._storages[key].as_strided(plain.size(), plain.stride(), plain.storage_offset())
        copy = torch._neg_view(copy) if negative else copy
        copy = copy.conj() if conjugate else copy
        return copy.detach().requires_grad_(tensor.requires_grad)


def tensors_of(nest: Any) -> list[torch.Tensor]:
    """Every tensor of a nest, in order."""
    return [leaf for leaf in tree_leaves(nest) if isinstance(leaf, torch.Tensor)]
