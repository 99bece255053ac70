"""Offline: the device writes the tokens of vLLM's CPU platform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.vllm.models import ARCHITECTURES, save, save_adapter
from tests.vllm.runs import OPTIONS, run, tokens

GREEDY = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True}
LONG = "of a text that is longer than what one step computes, " * 2
CALLS: list[dict[str, Any]] = [
    {"prompts": ["Hello", "x", LONG + "to its end"], "parameters": {**GREEDY, "logprobs": 3}},
    # The beginning is in the cache by then.
    {"prompts": [LONG + "to another end"], "parameters": GREEDY},
    {"prompts": ["Hello", "y"], "parameters": {**GREEDY, "repetition_penalty": 1.3}},
    {"prompts": ["Hello"], "parameters": {**GREEDY, "temperature": 0.7, "top_k": 1}},
    {"prompts": ["A word"], "parameters": {**GREEDY, "ignore_eos": False, "choice": ["red", "no"]}},
]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """Of each architecture its folder, and what vLLM's CPU platform writes."""
    found = {}
    for architecture in ARCHITECTURES:
        folder = tmp_path_factory.mktemp(architecture)
        model = save(architecture, folder / "model")
        job = {"model": str(model), "options": {**OPTIONS, "enforce_eager": True}, "calls": CALLS}
        found[architecture] = (model, run("cpu", job, folder))
    return found


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "compiled"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_are_those_of_the_cpu_platform(
    architecture: str, eager: bool, expected: dict[str, tuple[Path, Any]], tmp_path: Path
) -> None:
    model, cpu = expected[architecture]
    job = {"model": str(model), "options": {**OPTIONS, "enforce_eager": eager}, "calls": CALLS}
    device = run("tpu", job, tmp_path)
    assert tokens(device) == tokens(cpu)
    assert device["compiles"] == 0  # after the warm-up
    assert device["cached"] >= 32  # tokens of the second call's prompt: a page at least
    assert device["answers"][-1][0]["text"] in ("red", "no")
    for ours, theirs in zip(device["answers"][0], cpu["answers"][0], strict=True):
        assert len(ours["logprobs"]) == GREEDY["max_tokens"]
        assert ours["logprobs"] == pytest.approx(theirs["logprobs"], abs=1e-4)


def test_an_adapter_changes_the_tokens_of_its_texts_alone(
    expected: dict[str, tuple[Path, Any]], tmp_path: Path
) -> None:
    model, _ = expected["llama"]
    plain = {"prompts": ["Hello", "a longer text"], "parameters": GREEDY}
    adapted = {**plain, "lora": str(save_adapter(tmp_path / "adapter"))}
    options = {**OPTIONS, "enforce_eager": True, "enable_lora": True, "max_loras": 1}
    job = {"model": str(model), "options": options, "calls": [plain, adapted, plain]}
    device, cpu = run("tpu", job, tmp_path), run("cpu", job, tmp_path)
    assert tokens(device) == tokens(cpu)
    assert tokens(device)[0] == tokens(device)[2] != tokens(device)[1]


def test_two_ranks_write_the_tokens_of_one(
    expected: dict[str, tuple[Path, Any]], tmp_path: Path
) -> None:
    model, cpu = expected["llama"]
    options = {**OPTIONS, "enforce_eager": True, "tensor_parallel_size": 2}
    job = {"model": str(model), "options": options, "calls": CALLS[1:2]}
    assert tokens(run("tpu", job, tmp_path)) == tokens(cpu)[1:2]
