"""Programs over jagged nested tensors, each for any device; the tests compare it with the CPU."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Program = Callable[[Any], Any]
LENGTHS = (3, 1, 4, 2)
HEADS = 2


def parts(width: int = 8, lengths: Iterable[int] = LENGTHS) -> list[Tensor]:
    """One tensor a sequence, the same in every call."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(length, width, generator=generator) for length in lengths]


def jagged(device: Any, width: int = 8, lengths: Iterable[int] = LENGTHS, **options: Any) -> Any:
    """A nested tensor of them."""
    return torch.nested.nested_tensor(
        parts(width, lengths), layout=torch.jagged, device=device, **options
    )


def flat(value: Any) -> list[Any]:
    """Tensors on the CPU, of a nested one its values, offsets and lengths; other values as is."""
    if isinstance(value, (tuple, list)):
        return [one for part in value for one in flat(part)]
    if isinstance(value, Tensor) and value.is_nested:
        nested: Any = value
        lengths = () if nested.lengths() is None else (nested.lengths(),)
        return flat([nested.values(), nested.offsets(), *lengths])
    return [value.detach().cpu()] if isinstance(value, Tensor) else [value]


def heads(nested: Any) -> Any:
    """``[B, ragged, H * E]`` as ``[B, H, ragged, E]``."""
    return nested.unflatten(-1, [HEADS, -1]).transpose(1, 2)


def attended(query: Any, key: Any, value: Any, **options: Any) -> Tensor:
    """Attention, its rows ``[T, H, E]``; on the CPU sequence by sequence, where PyTorch has less"""
    if query.device.type != "cpu":
        found: Any = F.scaled_dot_product_attention(query, key, value, **options)
        rows: Tensor = found.transpose(1, 2).values()
        return rows
    each = zip(query.unbind(), key.unbind(), value.unbind(), strict=True)
    return torch.cat(
        [F.scaled_dot_product_attention(*one, **options).transpose(0, 1) for one in each]
    )


class Block(nn.Module):
    """A layer of a transformer's encoder."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.RMSNorm(width)
        self.projection, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x: Any) -> Any:
        """The same over nested tensors as over padded ones."""
        # The CPU's attention asks for sequences that lie dense.
        query, key, value = (
            heads(one.contiguous()) for one in self.projection(self.first(x)).chunk(3, -1)
        )
        found = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(found.transpose(1, 2).flatten(-2))
        return x + self.hidden(self.second(x))


def with_gaps(device: Any) -> Any:
    """Sequences that do not fill their places."""
    values = torch.arange(48.0).view(12, 4).to(device)
    offsets, lengths = torch.tensor([0, 4, 8, 12]), torch.tensor([2, 4, 1])
    return torch.nested.nested_tensor_from_jagged(
        values, offsets=offsets.to(device), lengths=lengths.to(device)
    )


def saved(device: Any) -> Any:
    """One that has been written and read."""
    file = io.BytesIO()
    torch.save(jagged(device), file)
    file.seek(0)
    return torch.load(file, weights_only=False)
