from __future__ import annotations

from typing import Any

import peft
import torch

from tests.clients.client_transformers import llama
from tests.clients.conftest import Case, timed

LIBRARY = "peft"


def test_lora(case: Case) -> None:
    """LoRA on a small Llama: training steps, then merged weights."""
    tokens = torch.randint(2, 64, (2, 16), generator=torch.Generator().manual_seed(1))
    merged = {}

    def run(device: str) -> list[tuple[float, Any]]:
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
        model = peft.get_peft_model(llama(), config).to(device)
        trained = [one for one in model.parameters() if one.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-2)
        ids = tokens.to(device)

        def step() -> torch.Tensor:
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        steps = [timed(step) for _ in range(6)]
        weight = model.merge_and_unload().model.layers[0].self_attn.q_proj.weight
        assert weight.device.type == device
        merged[device] = weight.detach().cpu()
        return steps

    device, cpu = case.compare(run)
    torch.testing.assert_close(device, cpu, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(merged["tpu"], merged["cpu"], rtol=1e-3, atol=1e-4)
    assert case.fallbacks == "0"
