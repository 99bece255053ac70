"""Llama-like training steps on slices that are not here: ``python -m bench.pod v5e:16x16 1b``.

FSDP2 over all chips, or with tensor parallelism over ``--tensor`` of them, bfloat16 parameters,
float32 gradients and fused AdamW, each block recomputed in the backward pass. Two depths are
compiled, and the model's own is on the line through them. ``--scheduled`` compiles no further than
the schedule; ``--search`` ranks a dozen layouts by it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

import fuse
from fuse.aot.pod import PodReport, products
from fuse.aot.search import Layout, layouts

VOCABULARY = 128256
HEAD = 128


@dataclass(frozen=True)
class Size:
    """A model's width, layers, heads, heads of keys and values, and hidden width."""

    width: int
    layers: int
    heads: int
    groups: int
    hidden: int


SIZES = {
    "1b": Size(2048, 16, 16, 8, 8192),
    "8b": Size(4096, 32, 32, 8, 14336),
}
"""Those of Llama 3.2 1B, with heads of 128, and of Llama 3.1 8B."""


class Block(nn.Module):
    """Attention and a gated layer, each behind an RMS norm."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        wide, narrow = size.heads * HEAD, size.groups * HEAD
        self.before, self.between = nn.RMSNorm(size.width), nn.RMSNorm(size.width)
        self.query = nn.Linear(size.width, wide, bias=False)
        self.key = nn.Linear(size.width, narrow, bias=False)
        self.value = nn.Linear(size.width, narrow, bias=False)
        self.out = nn.Linear(wide, size.width, bias=False)
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        query, key = (turned(_heads(one(y)), cos, sin) for one in (self.query, self.key))
        seen = F.scaled_dot_product_attention(
            query, key, _heads(self.value(y)), is_causal=True, enable_gqa=True
        )
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (-1, HEAD)).transpose(1, 2)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions: pairs of ``[..., tokens, HEAD]``, half the width apart, turned."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), -1) * sin


class Llama(nn.Module):
    """Blocks between an embedding and a loss over the vocabulary."""

    def __init__(self, size: Size, layers: int, tokens: int, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(VOCABULARY, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(layers))
        self.norm = nn.RMSNorm(size.width)
        self.head = nn.Linear(size.width, VOCABULARY, bias=False)
        steps = 500000.0 ** -(torch.arange(0, HEAD, 2) / HEAD)
        angles = torch.outer(torch.arange(tokens), steps).repeat(1, 2)
        self.register_buffer("cos", angles.cos().bfloat16())
        self.register_buffer("sin", angles.sin().bfloat16())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), ids.flatten())


DIVIDED = {
    **dict.fromkeys(("query", "key", "value", "gate", "up"), ColwiseParallel()),
    **dict.fromkeys(("out", "down"), RowwiseParallel()),
}
"""How a block's products are divided over ranks: two sums of activations a block."""


def step_of(size: Size, layers: int, tokens: int, layout: Layout) -> Callable[[], float]:
    """A training step in a layout; for a fake run."""
    with torch.device("tpu"):
        model = Llama(size, layers, tokens, layout.recompute)
        ids = torch.randint(VOCABULARY, (layout.batch, tokens))
    mesh = layout.mesh()
    if layout.tensor > 1:
        for block in model.blocks:
            parallelize_module(block, mesh["tensor"], DIVIDED)
    over = mesh["replicate", "shard"] if layout.replicas > 1 else mesh["shard"]
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in (*model.blocks, model):
        fully_shard(block, mesh=over, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def step() -> float:
        loss = model(ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def report(
    target: str, size: Size, layers: int, tokens: int, layout: Layout, scheduled: bool
) -> PodReport:
    """The report of a model of so many layers."""
    with fuse.fake(layout.ranks):
        model = products(step_of(size, layers, tokens, replace(layout, recompute=False)))
    with fuse.fake(layout.ranks):
        step = step_of(size, layers, tokens, layout)
        return fuse.compile_pod(target, step, flops=model, scheduled=scheduled)


def main() -> None:
    """Print the report of a model on a slice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="a slice, such as v5e:16x16")
    parser.add_argument("model", choices=SIZES)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1, help="sequences a chip")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--tensor", type=int, default=1, help="ranks that divide products")
    parser.add_argument("--scheduled", action="store_true")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--depths", type=int, nargs=2, default=(2, 4))
    given = parser.parse_args()
    size = SIZES[given.model]
    if given.search:
        choices = layouts(given.ranks, (given.batch, 2 * given.batch))
        print(
            fuse.search_pod(
                given.target,
                lambda layout, layers: step_of(size, layers, given.tokens, layout),
                size.layers,
                choices,
                tuple(given.depths),
            )
        )
        return
    layout = Layout(shard=given.ranks // given.tensor, tensor=given.tensor, batch=given.batch)
    few, more = (
        report(given.target, size, layers, given.tokens, layout, given.scheduled)
        for layers in given.depths
    )
    for one in (few, more):
        print(one, end="\n\n", flush=True)
    if not few.error and not more.error:
        print(few.at_depth(more, tuple(given.depths), size.layers))


if __name__ == "__main__":
    main()
