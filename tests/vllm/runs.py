"""Runs of vLLM in processes of their own, on the device or on vLLM's CPU platform."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuse.ports import free_port

SECONDS = 900
"""A run may compile every shape first."""
OPTIONS = {
    "dtype": "float32",
    "max_model_len": 256,
    "max_num_seqs": 8,
    # Shorter than the longest prompt: it is computed in chunks.
    "max_num_batched_tokens": 64,
    "kv_cache_memory_bytes": 32 << 20,
    "disable_log_stats": False,
}


def environment(device: str) -> dict[str, str]:
    """A user's: without the settings of these tests, and with vLLM on ``device``."""
    kept = {name: value for name, value in os.environ.items() if name != "FUSE_TIER"}
    return kept | {"VLLM_TARGET_DEVICE": "cpu"} if device == "cpu" else kept


def _answer(command: list[str], settings: dict[str, str], path: Path) -> dict[str, Any]:
    """What a command that has to succeed leaves at ``path``."""
    done = subprocess.run(
        command, env=settings, timeout=SECONDS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def run(device: str, job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What ``tests.vllm.program`` gives for a job.

    On the device the worker is in the program's process if it is the only one, so that its compiles
    are counted; vLLM's CPU platform is given a process of its own, as its users have it.
    """
    alone = job["options"].get("tensor_parallel_size", 1) == 1
    settings = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"} if device == "tpu" and alone else {}
    if settings:
        settings["FUSE_TIER"] = "compiled"
    asked, given = folder / f"{device}-job.json", folder / f"{device}-result.json"
    asked.write_text(json.dumps(job))
    command = [sys.executable, "-m", "tests.vllm.program", str(asked), str(given)]
    return _answer(command, environment(device) | settings, given)


def tokens(result: dict[str, Any]) -> list[list[list[int]]]:
    """Of each call the tokens of each prompt."""
    return [[one["tokens"] for one in call] for call in result["answers"]]


@contextmanager
def server(device: str, model: Path, log: Path, *options: str) -> Iterator[str]:
    """``vllm serve`` on this machine alone: its address, once it answers."""
    port = str(free_port())
    command = [
        str(Path(sys.executable).with_name("vllm")),
        *("serve", str(model), "--host", "127.0.0.1", "--port", port, "--dtype", "float32"),
        *("--max-model-len", "512", "--max-num-seqs", "32", "--max-num-batched-tokens", "512"),
        *("--kv-cache-memory-bytes", str(128 << 20), "--served-model-name", "small", *options),
    ]
    address = f"http://127.0.0.1:{port}"
    settings = environment(device) | {"FUSE_EXPLAIN": "recompiles"}
    with log.open("w") as written:
        process = subprocess.Popen(command, env=settings, stdout=written, stderr=written)
        try:
            _await(process, address, log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    for _ in range(SECONDS):
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=1):
                return
        except OSError:
            # Not there yet; a poll a second.
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                continue
    raise AssertionError(f"no answer after {SECONDS} s: {log.read_text()[-3000:]}")


def benchmark(address: str, model: Path, requests: int, seed: int, result: Path) -> dict[str, Any]:
    """What vLLM's own client measures: random prompts and answers, 32 at a time."""
    command = [
        str(Path(sys.executable).with_name("vllm")),
        *("bench", "serve", "--backend", "openai", "--base-url", address, "--model", "small"),
        *("--tokenizer", str(model), "--dataset-name", "random", "--random-input-len", "100"),
        *("--random-output-len", "40", "--random-range-ratio", "0.8", "--ignore-eos"),
        *("--num-prompts", str(requests), "--max-concurrency", "32", "--seed", str(seed)),
        *("--save-result", "--result-dir", str(result.parent), "--result-filename", result.name),
    ]
    return _answer(command, environment("cpu"), result)
