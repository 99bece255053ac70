"""Attention over a cache in pages, in PyTorch's operators.

A page is ``[tokens, heads, 2, size]``: of each key/value head its key, then its value, as the
ragged paged attention kernels of TPUs have them. So a token is one row of the cache: one write puts
keys and values, one gather reads both. Page 0 belongs to nobody, and takes what padded tokens
write.
"""

from __future__ import annotations

import torch


def write(pages: torch.Tensor, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    """Put the keys and values of tokens into their places of the cache, in place.

    Args:
        pages: ``[pages, tokens, heads, 2, size]``, contiguous.
        slots: ``[T]``, integers: the page's number times its tokens, plus the place in it.
        key: ``[T, heads, size]``.
        value: the same.
    """
    rows = pages.view(-1, *pages.shape[2:])
    rows.index_put_((slots,), torch.stack((key, value), dim=2).to(pages.dtype))


def read(
    query: torch.Tensor,
    pages: torch.Tensor,
    tables: torch.Tensor,
    positions: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
) -> torch.Tensor:
    """The attention of queries to the earlier tokens of their texts.

    Args:
        query: ``[N, Q, query heads, size]``: ``N`` groups of ``Q`` queries, each of one text.
        pages: ``[pages, tokens, heads, 2, size]``; query heads are a multiple of heads.
        tables: ``[N, P]``: the pages of each group's text, in order.
        positions: ``[N, Q]``: each query's place in its text; it sees this and earlier ones.
        scale: of the products of queries and keys.
        window: how many tokens a query sees at most, itself with them.
        soft_cap: products are bounded by it, by a hyperbolic tangent.

    Returns:
        ``[N, Q, query heads, size]``, of the query's dtype.
    """
    groups, width, query_heads, size = query.shape
    heads = pages.shape[2]
    shared = query_heads // heads
    held = pages[tables]  # [N, P, tokens, heads, 2, size]
    length = held.shape[1] * held.shape[2]
    held = held.view(groups, length, heads, 2, size).to(query.dtype)
    key = held[..., 0, :].permute(0, 2, 3, 1)
    value = held[..., 1, :].permute(0, 2, 1, 3)
    # Query heads that share a key's head stand below each other: one product for all of them.
    rows = query.view(groups, width, heads, shared, size).permute(0, 2, 3, 1, 4)
    rows = rows.reshape(groups, heads, shared * width, size)
    scores = (rows @ key).float() * scale
    if soft_cap is not None:
        scores = torch.tanh(scores / soft_cap) * soft_cap
    scores = scores.view(groups, heads, shared, width, length)
    scores = scores.masked_fill(~_seen(positions, length, window)[:, None, None], float("-inf"))
    weights = scores.softmax(dim=-1).to(query.dtype).view(groups, heads, shared * width, length)
    result = (weights @ value).view(groups, heads, shared, width, size)
    return result.permute(0, 3, 1, 2, 4).reshape(groups, width, query_heads, size)


def _seen(positions: torch.Tensor, length: int, window: int | None) -> torch.Tensor:
    places = torch.arange(length, device=positions.device, dtype=positions.dtype)
    last = positions[..., None]
    seen = places <= last
    return seen if window is None else seen & (places > last - window)
