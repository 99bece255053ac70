from __future__ import annotations

from typing import Any

import torch
import x_transformers

from tests.clients.conftest import Case, timed
from tests.clients.steps import equal_losses, training

LIBRARY = "x-transformers"


def decoder() -> Any:
    torch.manual_seed(0)
    layers = x_transformers.Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True)
    inner = x_transformers.TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=layers)
    return x_transformers.AutoregressiveWrapper(inner)


def tokens(device: str) -> torch.Tensor:
    return torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(1)).to(device)


def test_training(case: Case) -> None:
    """A `Decoder` with rotary positions: training steps."""

    def run(device: str) -> list[tuple[float, Any]]:
        model, batch = decoder().to(device), tokens(device)
        return training(model, lambda: model(batch), lr=1e-3)

    equal_losses(*case.compare(run))


def test_generate(case: Case) -> None:
    """`AutoregressiveWrapper.generate`, greedy, with its cache: CPU's tokens."""

    def run(device: str) -> list[tuple[float, Any]]:
        model, prompt = decoder().to(device).eval(), tokens(device)[:, :4]
        return [
            timed(lambda: model.generate(prompt, 8, temperature=0.0).tolist()) for _ in range(4)
        ]

    device, cpu = case.compare(run)
    assert device == cpu
