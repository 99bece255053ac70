from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import fuse
from tests.clients import ranks, words
from tests.clients.conftest import Case, timed
from tests.device.helpers import recorder

LIBRARY = "transformers"
LLAMA = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
PROGRAM = """
from pathlib import Path
from tests.clients.client_transformers import train
trainer, steps, evaluated = train(Path("."), "tpu", per_device_train_batch_size=4)
losses = [loss for _, loss in steps]
report(trainer.args.world_size, trainer.model.device.type, losses)
"""


def llama(**fields: Any) -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, **fields))


class Clock(transformers.TrainerCallback):
    """How long each step took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self.start)


def train(folder: Path, device: str, **options: Any) -> tuple[Any, list[tuple[float, float]], Any]:
    """Train a small Llama by ``Trainer``: itself, seconds and loss of each step, evaluations."""
    resume, callbacks = options.pop("resume", None), options.pop("callbacks", [])
    model = llama(attention_dropout=options.pop("dropout", 0.0))
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, 64, (32, 16), generator=generator)
    data = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        use_cpu=device == "cpu",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        learning_rate=1e-3,
        seed=0,
        **{
            "per_device_train_batch_size": 8,
            "num_train_epochs": 2,
            "save_strategy": "no",
            **options,
        },
    )
    clock = Clock()
    trainer = transformers.Trainer(
        model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[clock, *callbacks]
    )
    trainer.train(resume_from_checkpoint=resume)
    assert trainer.model.device.type == arguments.device.type == device
    history = trainer.state.log_history
    losses = [entry["loss"] for entry in history if "loss" in entry]
    evaluated = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
    return trainer, list(zip(clock.seconds, losses[-len(clock.seconds) :], strict=True)), evaluated


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_accumulation_steps": 2}, {"gradient_checkpointing": True}],
    ids=["by default", "gradient_accumulation_steps=2", "gradient_checkpointing=True"],
)
def test_trainer(case: Case, tmp_path: Path, options: dict[str, Any]) -> None:
    """`Trainer` with evaluation and clipping; `use_cpu=True` stays on the CPU."""
    evaluations = {}

    def run(device: str) -> list[tuple[float, Any]]:
        _, steps, evaluations[device] = train(tmp_path, device, eval_strategy="epoch", **options)
        return steps

    device, cpu = case.compare(run)
    torch.testing.assert_close(device, cpu, rtol=1e-4, atol=1e-5)
    assert len(evaluations["cpu"]) == 2
    torch.testing.assert_close(evaluations["tpu"], evaluations["cpu"], rtol=1e-4, atol=1e-5)
    assert case.fallbacks == "0"


def test_device_map_in_two_memories(case: Case, tmp_path: Path) -> None:
    """`device_map="auto"` with `max_memory`: layers that do not fit are offloaded to the CPU."""
    model = llama().eval()
    model.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path, device_map="auto", max_memory={0: 60_000, "cpu": "1GB"}
    )
    assert set(loaded.hf_device_map.values()) == {0, "cpu"}
    tokens = torch.randint(2, 64, (2, 5), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found, expected = loaded(tokens.to("tpu")).logits, model(tokens).logits
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


class Made(transformers.TrainerCallback):
    """What each step compiled, ran uncompiled or on the host, and its traces."""

    def __init__(self) -> None:
        self.before = self._now()
        self.steps: list[dict[str, int]] = []

    @staticmethod
    def _now() -> dict[str, int]:
        found = fuse.stats()
        return {
            "compiles": found["compiles"],
            "found outside memory": found["cache"]["memory"]["misses"],
            "uncompiled": found["uncompiled_operations"],
            "on the host": sum(found["host_fallbacks"].values()),
            "traces": found["traces"],
        }

    def on_step_end(self, *_: Any, **__: Any) -> None:
        now = self._now()
        self.steps.append({name: number - self.before[name] for name, number in now.items()})
        self.before = now


def test_trainer_is_steady(case: Case, tmp_path: Path) -> None:
    """`Trainer`, fused AdamW by a linear schedule: no step after the third compiles anything."""
    made = Made()
    with recorder(tier="compiled"):
        trainer, _, _ = train(tmp_path, "tpu", num_train_epochs=5, callbacks=[made])
    assert trainer.args.optim == "adamw_torch_fused"
    first, *rest = made.steps[3:]
    assert first.pop("traces") <= 5
    assert set(first.values()) == {0}
    assert all(step == {**first, "traces": step["traces"]} for step in rest)
    assert max(step["traces"] for step in rest) <= 5


def test_trainer_bf16(case: Case, tmp_path: Path) -> None:
    """`Trainer(bf16=True)`."""
    device, cpu = case.compare(lambda device: train(tmp_path, device, bf16=True)[1])
    torch.testing.assert_close(device, cpu, rtol=2e-2, atol=1e-2)
    assert case.fallbacks == "0"


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_trainer_resumes(case: Case, tmp_path: Path, dropout: float) -> None:
    """`Trainer`: checkpoints, and resuming from one gives the unbroken run's losses, dropout"""
    _, whole, _ = train(tmp_path, "tpu", save_strategy="steps", save_steps=4, dropout=dropout)
    checkpoint = str(tmp_path / "out" / "checkpoint-4")
    _, rest, _ = train(tmp_path, "tpu", resume=checkpoint, dropout=dropout)
    assert len(rest) == 4
    torch.testing.assert_close([one for _, one in rest], [one for _, one in whole[4:]])


def test_trainer_on_two_ranks(case: Case, tmp_path: Path) -> None:
    """`Trainer` on two ranks by torchrun: losses of one CPU process with the double batch."""
    device = ranks.results(PROGRAM, tmp_path)
    assert [one[:2] for one in device] == [[2, "tpu"]] * 2
    _, cpu, _ = train(tmp_path, "cpu", per_device_train_batch_size=8)
    torch.testing.assert_close(device[0][2], [one for _, one in cpu], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("beams", [1, 2], ids=["greedy", "2 beams"])
def test_generate(case: Case, cache: str, beams: int) -> None:
    """`generate` gives CPU's tokens."""
    prompt = torch.randint(2, 64, (2, 5), generator=torch.Generator().manual_seed(1))

    def run(device: str) -> list[tuple[float, Any]]:
        model = llama().eval().to(device)
        options = {"max_new_tokens": 12, "do_sample": False, "num_beams": beams}

        def call() -> list[list[int]]:
            found = model.generate(prompt.to(device), cache_implementation=cache, **options)
            assert found.device.type == device
            return found.tolist()  # type: ignore[no-any-return]

        return [timed(call) for _ in range(4)]

    device, cpu = case.compare(run)
    assert device == cpu


def test_pipeline(case: Case, tmp_path: Path) -> None:
    """`pipeline(device="tpu")` from a saved model and tokenizer."""
    llama().save_pretrained(tmp_path)
    words.tokenizer().save_pretrained(tmp_path)

    def run(device: str) -> list[tuple[float, Any]]:
        write = transformers.pipeline("text-generation", model=str(tmp_path), device=device)
        assert write.model.device.type == device
        return [timed(lambda: write("5 6 7", max_new_tokens=8, do_sample=False)) for _ in range(4)]

    device, cpu = case.compare(run)
    assert device == cpu


def test_pipeline_takes_the_device(case: Case, tmp_path: Path) -> None:
    """`pipeline` without a device, by number, of a model that is there, and in two memories."""
    words.tokenizer().save_pretrained(tmp_path)
    llama().save_pretrained(tmp_path)

    def write(model: Any, **options: Any) -> tuple[str, str]:
        made = transformers.pipeline(
            "text-generation", model=model, tokenizer=words.tokenizer(), **options
        )
        text = made("5 6 7", max_new_tokens=8, do_sample=False)[0]["generated_text"]
        return made.device.type, text

    kind, expected = write(str(tmp_path), device="cpu")
    assert kind == "cpu"
    split = {"device_map": "auto", "model_kwargs": {"max_memory": {0: 60_000, "cpu": "1GB"}}}
    for options in ({}, {"device": 0}, {"device_map": "auto"}, split):
        assert write(str(tmp_path), **options) == ("tpu", expected)
    assert write(llama().eval().to("tpu")) == ("tpu", expected)
    assert write(llama().eval().to("tpu"), device=-1) == ("tpu", expected)


@pytest.mark.parametrize("where", ["tpu", "auto", "balanced", "sequential"])
def test_device_map(case: Case, tmp_path: Path, where: str) -> None:
    """`from_pretrained(device_map=...)` gives the device the saved weights."""
    model = llama()
    model.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path, device_map=where)
    assert {one.device.type for one in loaded.parameters()} == {"tpu"}
    ours = {name: one.cpu() for name, one in loaded.state_dict().items()}
    torch.testing.assert_close(ours, dict(model.state_dict()), rtol=0, atol=0)
