"""``vllm serve`` on the device, asked by vLLM's own client, beside its CPU platform."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from tests.vllm.models import save
from tests.vllm.runs import benchmark, server

REQUESTS = 500


def complete(address: str, prompt: str) -> str:
    """The likeliest 20 letters after a prompt, by the server's OpenAI-compatible interface."""
    body = {"model": "small", "prompt": prompt, "max_tokens": 20, "temperature": 0}
    request = urllib.request.Request(
        f"{address}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = json.load(answer)["choices"][0]["text"]
    return text


def test_requests_of_random_lengths(tmp_path: Path) -> None:
    """None fails, none compiles, the texts are the CPU platform's; how fast is printed."""
    model = save("llama", tmp_path / "model")
    prompts = ["Hello", "a longer text " * 12, "x"]
    texts, requests_a_second = {}, {}
    for device, options in (("cpu", []), ("tpu", ["--enforce-eager"])):
        log = tmp_path / f"{device}.log"
        with server(device, model, log, *options) as address:
            texts[device] = [complete(address, prompt) for prompt in prompts]
            before = len(log.read_text())
            for seed in (1, 2):
                found = benchmark(address, model, REQUESTS, seed, tmp_path / f"{device}.json")
                assert found["completed"] == REQUESTS
            requests_a_second[device] = found["request_throughput"]
            assert "fuse: compiled" not in log.read_text()[before:]
    print(requests_a_second)
    assert texts["tpu"] == texts["cpu"]
