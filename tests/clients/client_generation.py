from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from tests.clients.client_architectures import GEMMA
from tests.clients.client_transformers import LLAMA, llama
from tests.clients.conftest import Case, timed

LIBRARY = "transformers"


def prompt(length: int = 5) -> torch.Tensor:
    return torch.randint(2, 64, (2, length), generator=torch.Generator().manual_seed(1))


def mistral() -> Any:
    torch.manual_seed(0)
    config = transformers.MistralConfig(**LLAMA, sliding_window=8)
    return transformers.MistralForCausalLM(config)


def gemma() -> Any:
    torch.manual_seed(0)
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**GEMMA))


def test_sampled(case: Case) -> None:
    """`generate(do_sample=True, top_k=4)`: tokens of CPU's four best, the same by the same seed."""
    model = llama().eval()

    def run(device: str) -> list[tuple[float, Any]]:
        model.to(device)

        def call() -> list[list[int]]:
            torch.manual_seed(3)
            options = {"max_new_tokens": 12, "do_sample": True, "top_k": 4, "temperature": 3.0}
            found: list[list[int]] = model.generate(prompt().to(device), **options).tolist()
            return found

        return [timed(call) for _ in range(4)]

    device, _ = case.compare(run)
    assert all(one == device[0] for one in device)
    written = torch.tensor(device[0])
    with torch.no_grad():
        best = model(written).logits.topk(4).indices
    assert (best[:, 4:-1] == written[:, 5:, None]).any(-1).all()
    assert (best[:, 4:-1, 0] != written[:, 5:]).any(), "nothing was sampled"


@pytest.mark.parametrize("build", [mistral, gemma], ids=["Mistral", "Gemma 2"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_sliding(case: Case, build: Any, cache: str) -> None:
    """`generate` past a sliding window of 8 tokens gives CPU's"""

    def run(device: str) -> list[tuple[float, Any]]:
        model = build().eval().to(device)
        options = {"max_new_tokens": 14, "do_sample": False, "cache_implementation": cache}
        return [
            timed(lambda: model.generate(prompt().to(device), **options).tolist()) for _ in range(4)
        ]

    device, cpu = case.compare(run)
    assert device == cpu


@pytest.mark.parametrize("how", ["another model", "prompt lookup"])
def test_assisted(case: Case, how: str) -> None:
    """`generate`, assisted: CPU's tokens"""

    def run(device: str) -> list[tuple[float, Any]]:
        model, helper = llama().eval().to(device), mistral().eval().to(device)
        options: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False}
        if how == "another model":
            options["assistant_model"] = helper
        else:
            options["prompt_lookup_num_tokens"] = 3
        one = prompt()[:1].to(device)
        return [timed(lambda: model.generate(one, **options).tolist()) for _ in range(4)]

    device, cpu = case.compare(run)
    assert device == cpu
