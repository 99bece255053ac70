"""``scaled_dot_product_attention`` over jagged nested tensors on the device.

PyTorch chooses among kernels of CUDA's, or makes strided nested tensors: neither is here. This is
dense attention over the sequences padded to the longest; or over all of them behind one another,
each masked to itself, where that has fewer scores or the longest is not known.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast, final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake
from torch.nested._internal.nested_tensor import (
    nested_from_padded,
    nested_view_from_values_offsets,
)
from torch.utils.weak import WeakTensorKeyDictionary

_NAME = "jagged_scaled_dot_product_attention"
_lengths: Any = WeakTensorKeyDictionary()
"""The longest sequence by offsets, which all layers share: it is read once."""


def extend(module: ModuleType) -> None:
    """Have ``torch.nested`` attend on the device. Idempotent."""
    own = getattr(module, _NAME)
    if hasattr(own, "of_fuse"):
        return

    @functools.wraps(own)
    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if not all(map(_is_ours, (query, key, value))):
            found = own(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        else:
            given = module._autocast(query, key, value, attn_mask)
            module._validate_sdpa_input(*given)
            query, key, value, _ = given
            found = _attend(query, key, value, _Options(dropout_p, is_causal, scale, enable_gqa))
        return cast(Tensor, found)

    attend.of_fuse = True  # type: ignore[attr-defined]
    setattr(module, _NAME, attend)


@final
@dataclass(frozen=True, slots=True)
class _Options:
    """What is asked of attention; a query of a causal one sees as many keys as precede it."""

    dropout: float
    causal: bool
    scale: float | None
    grouped: bool

    def dense(self, heads: list[Tensor], mask: Tensor | None) -> Tensor:
        """Attention of three ``[B, H, L, E]``; without a mask a causal one is PyTorch's."""
        query, key, value = heads
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            mask,
            self.dropout,
            self.causal and mask is None,
            scale=self.scale,
            enable_gqa=self.grouped,
        )


def _is_ours(one: Any) -> bool:
    """Whether it is ``[B, H, ragged, E]`` without holes, on the device."""
    if not one.is_nested or one.device.type != "tpu":
        return False
    return bool(one.dim() == 4 and one._ragged_idx == 2 and one.lengths() is None)


def _attend(query: Any, key: Any, value: Any, options: _Options) -> Any:
    if not query.size(0) == key.size(0) == value.size(0):
        raise RuntimeError(
            "scaled_dot_product_attention: query, key and value have "
            f"{query.size(0)}, {key.size(0)} and {value.size(0)} sequences; they must have as many"
        )
    rows = [_rows(one).size(0) for one in (key, value)]
    if rows[0] != rows[1]:
        raise RuntimeError(
            f"scaled_dot_product_attention: the sequences of key have {rows[0]} rows, those of "
            f"value {rows[1]}; they must be as long"
        )
    queries, keys = _longest(query), _longest(key)
    if queries is None or keys is None or _has_fewer_scores(query, key, (queries, keys)):
        return _behind_one_another(query, key, value, options)
    return _padded(query, key, value, (queries, keys), options)


def _longest(nested: Any) -> int | None:
    """The length of the longest sequence; ``None`` while tracing, where nothing can be read."""
    known: int | None = nested._maybe_max_seqlen
    offsets = nested.offsets()
    if known is None and not is_fake(offsets):
        known = _lengths.get(offsets)
        if known is None:
            known = _lengths[offsets] = nested._get_max_seqlen()
    return known


def _rows(nested: Any) -> Tensor:
    """All sequences behind one another: ``[T, H, E]``."""
    rows: Tensor = nested.transpose(1, 2).values()
    return rows


def _has_fewer_scores(query: Any, key: Any, longest: tuple[int, int]) -> bool:
    """Whether all queries and keys have fewer scores than padded ones; unknown of symbolic sizes,
    which to compare would make a guard of."""
    together: Any = _rows(query).size(0) * _rows(key).size(0)
    padded: Any = query.size(0) * longest[0] * longest[1]
    return not any(isinstance(one, torch.SymInt) for one in (together, padded)) and bool(
        together < padded
    )


def _padded(query: Any, key: Any, value: Any, longest: tuple[int, int], options: _Options) -> Any:
    offsets, mask = query.offsets(), None
    # Of sequences as long as their keys, a causal mask hides the padding as well.
    if not options.causal or key.offsets() is not offsets:
        mask = _key_mask(key.offsets(), longest, options.causal)
    dense = [
        one.transpose(1, 2).to_padded_tensor(0.0, (one.size(0), length, one.size(1), one.size(3)))
        for one, length in ((query, longest[0]), (key, longest[1]), (value, longest[1]))
    ]
    found = options.dense([one.transpose(1, 2) for one in dense], mask).transpose(1, 2)
    return nested_from_padded(
        found,
        offsets,
        min_seqlen=query._maybe_min_seqlen,
        max_seqlen=longest[0],
        sum_S=_rows(query).size(0),
    ).transpose(1, 2)


def _key_mask(ends: Tensor, longest: tuple[int, int], causal: bool) -> Tensor:
    """Which keys of each padded sequence a query sees: ``[B, 1, 1 or L, S]``."""
    place = torch.arange(longest[1], device=ends.device)
    seen = (place < ends.diff()[:, None])[:, None, None]
    if causal:
        seen = seen & (place <= torch.arange(longest[0], device=ends.device)[:, None])
    return seen


def _behind_one_another(query: Any, key: Any, value: Any, options: _Options) -> Any:
    rows = [_rows(one) for one in (query, key, value)]
    row, at = _places(query.offsets(), rows[0].size(0))
    column, place = _places(key.offsets(), rows[1].size(0))
    seen = row[:, None] == column
    if options.causal:
        seen = seen & (place <= at[:, None])
    found = options.dense([one.transpose(0, 1)[None] for one in rows], seen)
    return nested_view_from_values_offsets(
        found[0].transpose(0, 1),
        query.offsets(),
        min_seqlen=query._maybe_min_seqlen,
        max_seqlen=query._maybe_max_seqlen,
    ).transpose(1, 2)


def _places(offsets: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The sequence of each row, and its place in it."""
    rows = torch.arange(size, device=offsets.device)
    sequence = torch.searchsorted(offsets[1:], rows, right=True)
    return sequence, rows - offsets[sequence.clamp(max=offsets.numel() - 2)]
