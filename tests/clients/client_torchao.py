from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torchao.quantization
import transformers

from tests.clients.client_transformers import llama
from tests.clients.conftest import Case, timed

LIBRARY = "torchao"
# An activation at the border of two of its 255 steps may be rounded to the other one.
CONFIGS = {"Int8WeightOnlyConfig": 1e-4, "Int8DynamicActivationInt8WeightConfig": 1e-2}


@pytest.mark.parametrize("name", CONFIGS)
def test_quantized(case: Case, name: str) -> None:
    """A small Llama's logits after `quantize_`"""
    tokens = torch.randint(2, 64, (2, 16), generator=torch.Generator().manual_seed(1))

    def run(device: str) -> list[tuple[float, Any]]:
        model = llama().eval()
        torchao.quantization.quantize_(model, getattr(torchao.quantization, name)())
        model = model.to(device)

        def call() -> Any:
            with torch.no_grad():
                logits = model(input_ids=tokens.to(device)).logits
            assert logits.device.type == device
            return logits.tolist()

        return [timed(call) for _ in range(4)]

    device, cpu = case.compare(run)
    torch.testing.assert_close(
        torch.tensor(device), torch.tensor(cpu), rtol=1e-3, atol=CONFIGS[name]
    )


def test_from_pretrained(case: Case, tmp_path: Path) -> None:
    """`from_pretrained(quantization_config=TorchAoConfig(...), device_map=...)`, `generate`."""
    llama().save_pretrained(tmp_path)
    prompt = torch.randint(2, 64, (2, 5), generator=torch.Generator().manual_seed(1))

    def run(device: str) -> list[tuple[float, Any]]:
        config = transformers.TorchAoConfig(torchao.quantization.Int8WeightOnlyConfig())
        model = transformers.LlamaForCausalLM.from_pretrained(
            tmp_path, quantization_config=config, device_map=device
        )
        assert model.device.type == device
        options = {"max_new_tokens": 8, "do_sample": False}
        return [
            timed(lambda: model.generate(prompt.to(device), **options).tolist()) for _ in range(4)
        ]

    device, cpu = case.compare(run)
    assert device == cpu
