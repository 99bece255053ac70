"""The character GPT with a static cache of keys and values: what ``examples/serving.py`` runs.

Every tensor has one shape for good: a decode step computes one character of every slot, free ones
too, and a prompt is padded to the next of a few lengths. So a device that compiles meets one
program for decoding and one for each of those lengths, whatever is asked of the server.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from fuse.examples import chargpt

BUCKETS = (16, 32, 64, 128)
"""Lengths to which prompts are padded; the last is the longest prompt."""


def bucket_of(length: int) -> int:
    """The length to which a prompt of ``length`` characters is padded."""
    return next(bucket for bucket in BUCKETS if length <= bucket)


class StaticCache:
    """Greedy decoding of up to ``slots`` texts side by side, on the model's device.

    A text in a slot is read by ``prefill`` and goes on by one character with each ``decode``. The
    state lies on the device: a step sends nothing there, and reads int64[slots] back.
    """

    def __init__(self, model: chargpt.CharGPT, slots: int) -> None:
        """An empty cache: float32[slots, HEADS, context, WIDTH // HEADS] twice a layer."""
        self.model = model
        self.slots = slots
        self.context = model.places.shape[0]
        device = model.places.device
        shape = (slots, chargpt.HEADS, self.context, chargpt.WIDTH // chargpt.HEADS)
        self._blocks: list[chargpt.Block] = [*model.blocks.children()]  # type: ignore[list-item]
        self._keys = [torch.zeros(shape, device=device) for _ in self._blocks]
        self._values = [torch.zeros(shape, device=device) for _ in self._blocks]
        self._slots = torch.arange(slots, device=device)
        self._places = torch.arange(self.context, device=device)
        self._last = torch.zeros_like(self._slots)  # the last character of each slot's text
        self._lengths = torch.zeros_like(self._slots)  # of the text before it

    @torch.no_grad()
    def prefill(self, prompt: Sequence[int], slot: int) -> int:
        """Read ``prompt``, 1 to ``BUCKETS[-1]`` characters, into ``slot``; the character after it.

        What the padding leaves in the cache is overwritten by ``decode`` before it is looked at.
        """
        bucket = bucket_of(len(prompt))
        padded = [*prompt, *[0] * (bucket - len(prompt))]
        # One copy to the device: the characters, the length and the slot.
        sent = torch.tensor([*padded, len(prompt), slot]).to(self._slots.device)
        characters, length, at = sent[None, :bucket], sent[bucket : bucket + 1], sent[bucket + 1 :]
        x = self.model.characters(characters) + self.model.places[:bucket]
        for block, keys, values in zip(self._blocks, self._keys, self._values, strict=True):
            query, key, value = block.attention.heads(block.attention_norm(x))
            keys[:, :, :bucket].index_copy_(0, at, key)
            values[:, :, :bucket].index_copy_(0, at, value)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + block.attention.joined(mixed)
            x = x + block.mlp(x)
        found = self._most_likely(x[0].index_select(0, length - 1))
        self._last.index_copy_(0, at, found)
        self._lengths.index_copy_(0, at, length)
        return int(found)

    @torch.no_grad()
    def decode(self) -> list[int]:
        """One more character of every slot; those of free slots mean nothing."""
        at = self._lengths
        x = self.model.characters(self._last[:, None]) + self.model.places[at][:, None]
        seen = (self._places <= at[:, None])[:, None, None]
        for block, keys, values in zip(self._blocks, self._keys, self._values, strict=True):
            query, key, value = block.attention.heads(block.attention_norm(x))
            keys[self._slots, :, at] = key[:, :, 0]
            values[self._slots, :, at] = value[:, :, 0]
            mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=seen)
            x = x + block.attention.joined(mixed)
            x = x + block.mlp(x)
        self._last.copy_(self._most_likely(x[:, 0]))
        # A free slot goes on at the last place: nothing of it is read.
        self._lengths.add_(1).clamp_(max=self.context - 1)
        return self._last.tolist()

    def _most_likely(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model.head(self.model.norm(x)).argmax(dim=-1)
        return found


@torch.no_grad()
def write_alone(model: chargpt.CharGPT, prompt: Sequence[int], length: int) -> list[int]:
    """The ``length`` characters after ``prompt`` by the model as it was trained: no cache, no
    padding, no other text beside it. What a server must answer."""
    text = torch.tensor([list(prompt)], device=model.places.device)
    for _ in range(length):
        text = torch.cat([text, model(text)[:, -1:].argmax(dim=-1)], dim=1)
    return text[0, len(prompt) :].tolist()
