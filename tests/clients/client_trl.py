from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import trl

from tests.clients import words
from tests.clients.client_transformers import Clock, llama
from tests.clients.conftest import Case
from tests.clients.steps import equal_losses

LIBRARY = "trl"
OPTIONS: dict[str, Any] = {
    "max_steps": 6,
    "logging_steps": 1,
    "per_device_train_batch_size": 2,
    "learning_rate": 1e-2,
    "report_to": [],
    "disable_tqdm": True,
    "save_strategy": "no",
    "seed": 0,
    "bf16": False,
    "gradient_checkpointing": False,
}


def rows(kind: str) -> Any:
    texts = [" ".join(str(2 + (row + step) % 60) for step in range(8)) for row in range(12)]
    if kind == "SFT":
        return datasets.Dataset.from_list([{"text": one} for one in texts])
    return datasets.Dataset.from_list(
        [{"prompt": one, "chosen": " 5 6", "rejected": " 9 8"} for one in texts]
    )


@pytest.mark.parametrize("kind", ["SFT", "DPO"], ids=["SFTTrainer", "DPOTrainer"])
def test_trainer(case: Case, tmp_path: Path, kind: str) -> None:
    """A small Llama tuned by a trainer, `use_cpu=True` on the CPU"""
    llama().save_pretrained(tmp_path / "model")

    def run(device: str) -> list[tuple[float, Any]]:
        config = getattr(trl, f"{kind}Config")(
            output_dir=str(tmp_path), use_cpu=device == "cpu", **OPTIONS
        )
        clock = Clock()
        trainer = getattr(trl, f"{kind}Trainer")(
            # A path: the trainer for DPO loads the model that it compares with from there.
            str(tmp_path / "model"),
            args=config,
            train_dataset=rows(kind),
            processing_class=words.tokenizer(bos_token="<s>", eos_token="<s>"),
            callbacks=[clock],
        )
        trainer.train()
        assert trainer.model.device.type == device
        found = [one["loss"] for one in trainer.state.log_history if "loss" in one]
        return list(zip(clock.seconds, found, strict=True))

    equal_losses(*case.compare(run), rtol=1e-3, atol=1e-3)
