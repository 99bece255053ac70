"""What vLLM's attention on the device is made of, without vLLM: shapes, batches, pages."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fuse.integrations.vllm import paged_attention
from fuse.integrations.vllm.batch import host_batch, on_device
from fuse.integrations.vllm.buckets import Buckets, Shape

BUCKETS = Buckets(most_tokens=100, most_texts=12, longest=300, page=16)
HEADS, SHARED, SIZE = 2, 3, 8


def test_every_step_has_one_of_the_listed_shapes() -> None:
    listed = list(BUCKETS.all())
    assert len(set(listed)) == len(listed)
    for tokens in (1, 2, 9, 64, 65, 100):
        for text in (1, 127, 128, 129, 300):
            shape = BUCKETS.shape(tokens, min(tokens, 2), max(text, min(tokens, 2)))
            assert shape in listed
            assert shape.tokens >= tokens and shape.pages * BUCKETS.page >= text


def test_tiles_are_enough_for_any_split_of_a_step() -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        texts = int(random.integers(1, BUCKETS.most_texts + 1))
        counts = random.multinomial(BUCKETS.most_tokens - texts, np.ones(texts) / texts) + 1
        shape = BUCKETS.shape(int(counts.sum()), int(counts.max()), 300)
        assert sum(-(-counts // shape.width)) <= shape.tiles
        assert texts <= shape.rows


def batch_of(counts: list[int], before: list[int]) -> tuple[Shape, list[np.ndarray], np.ndarray]:
    """A step of texts: its shape, its arrays, and each text's pages."""
    lengths = np.array(before) + counts
    starts = np.concatenate(([0], np.cumsum(counts)))
    numbers = np.random.default_rng(1).permutation(np.arange(1, 100))[: 19 * len(counts)]
    tables = numbers.reshape(len(counts), 19)
    places = np.concatenate([np.arange(b, b + c) for b, c in zip(before, counts, strict=True)])
    owner = np.repeat(np.arange(len(counts)), counts)
    slots = tables[owner, places // BUCKETS.page] * BUCKETS.page + places % BUCKETS.page
    shape = BUCKETS.shape(int(starts[-1]), max(counts), int(lengths.max()))
    return shape, host_batch(shape, starts, lengths, tables, slots), tables


@pytest.mark.parametrize(
    ("counts", "before"),
    [([1, 1, 1], [0, 40, 200]), ([20, 1, 9], [0, 100, 33]), ([64], [0]), ([5, 5], [130, 0])],
    ids=["one token each", "mixed", "a prompt", "chunks"],
)
@pytest.mark.parametrize("window", [None, 24])
def test_attention_is_that_of_each_text(
    counts: list[int], before: list[int], window: int | None
) -> None:
    torch.manual_seed(0)
    shape, arrays, tables = batch_of(counts, before)
    batch = on_device(shape, arrays)
    pages = torch.randn(100, BUCKETS.page, HEADS, 2, SIZE)
    query = torch.randn(shape.tokens, HEADS * SHARED, SIZE)
    key, value = torch.randn(2, shape.tokens, HEADS, SIZE)
    there = pages.to("tpu")
    paged_attention.write(there, batch.slots, key.to("tpu"), value.to("tpu"))
    rows = query.to("tpu") if batch.queries is None else query.to("tpu")[batch.queries]
    result = paged_attention.read(
        rows.view(shape.tiles, shape.width, HEADS * SHARED, SIZE),
        there,
        batch.tables,
        batch.positions,
        scale=0.3,
        window=window,
    ).reshape(-1, HEADS * SHARED, SIZE)
    result = (result if batch.back is None else result[batch.back]).cpu()
    written, start = there.cpu(), 0
    for text, (count, earlier) in enumerate(zip(counts, before, strict=True)):
        held = written[torch.from_numpy(tables[text])].view(-1, HEADS, 2, SIZE)[: earlier + count]
        assert torch.equal(held[earlier:, :, 0], key[start : start + count])
        places = torch.arange(earlier + count)
        last = places[earlier:, None]
        seen = (places <= last) & (places > last - (window or 1000))
        expected = torch.nn.functional.scaled_dot_product_attention(
            query[start : start + count].transpose(0, 1),
            held[:, :, 0].transpose(0, 1).repeat_interleave(SHARED, 0),
            held[:, :, 1].transpose(0, 1).repeat_interleave(SHARED, 0),
            seen,
            scale=0.3,
        ).transpose(0, 1)
        torch.testing.assert_close(result[start : start + count], expected, atol=1e-5, rtol=1e-5)
        start += count
