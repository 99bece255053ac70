"""What the layers of a step share: a batch, padded to the step's shape, copied at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fuse.integrations.vllm.buckets import Shape


@dataclass
class PagedBatch:
    """What a step's layers share, on the device; sizes are those of its ``Shape``.

    Attributes:
        slots: ``[tokens]``: where each token's key and value go; 0 for padding.
        tables: ``[tiles, pages]``: the pages of each tile's text.
        positions: ``[tiles, width]``: the place in its text of each query.
        queries: ``[tiles, width]``: the token of each query; None where tiles are tokens.
        back: ``[tokens]``: the query, counted over all tiles, of each token; None likewise.
    """

    slots: torch.Tensor
    tables: torch.Tensor
    positions: torch.Tensor
    queries: torch.Tensor | None
    back: torch.Tensor | None


def host_batch(
    shape: Shape, starts: np.ndarray, lengths: np.ndarray, tables: np.ndarray, slots: np.ndarray
) -> list[np.ndarray]:
    """A step's batch, padded: the arrays of ``PagedBatch`` in order.

    Args:
        shape: the step's.
        starts: ``[R + 1]``: where each text's tokens begin, and the end.
        lengths: ``[R]``: each text's tokens, those of this step with them.
        tables: ``[R, at least pages]``: each text's pages.
        slots: ``[starts[-1]]``: where each token's key and value go.
    """
    counts = np.diff(starts)
    all_slots = np.zeros(shape.tokens, np.int32)
    all_slots[: len(slots)] = np.maximum(slots, 0)
    tiles_of = -(-counts // shape.width)
    first = np.cumsum(tiles_of) - tiles_of
    text = np.repeat(np.arange(len(counts)), tiles_of)
    all_tables = np.zeros((shape.tiles, shape.pages), np.int32)
    all_tables[: len(text)] = tables[text, : shape.pages]
    # Where each token's query is, counted over all tiles, and its place in its text.
    owner = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(starts[-1]) - starts[owner]
    place = first[owner] * shape.width + within
    positions = np.zeros(shape.tiles * shape.width, np.int32)
    positions[place] = (lengths - counts)[owner] + within
    if shape.width == 1:
        return [all_slots, all_tables, positions]
    queries = np.zeros(shape.tiles * shape.width, np.int32)
    queries[place] = np.arange(starts[-1])
    back = np.zeros(shape.tokens, np.int32)
    back[: starts[-1]] = place
    return [all_slots, all_tables, positions, queries, back]


def on_device(shape: Shape, arrays: list[np.ndarray]) -> PagedBatch:
    """The batch of what ``host_batch`` gave, in one copy."""
    packed = torch.from_numpy(np.concatenate([array.ravel() for array in arrays])).to("tpu")
    sizes = [array.size for array in arrays]
    slots, tables, positions, *rest = packed.split(sizes)
    queries, back = rest or (None, None)
    return PagedBatch(
        slots,
        tables.view(shape.tiles, shape.pages),
        positions.view(shape.tiles, shape.width),
        queries,
        back,
    )
