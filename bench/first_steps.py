"""The first minutes with small models of transformers: first steps and first tokens.

    python -m bench.first_steps                      # all architectures
    python -m bench.first_steps Llama GPT-2 --tier compiled

Seconds of the first three training steps together and of the first 24 tokens, with a dynamic and
with a static cache, on CPU eager, on the device with an empty cache (cold), and with what that
run stored (warm), each in a process of its own. With a static cache transformers compiles by
itself on the device (``torch.compile``), and not on the CPU.

Imports and the start of the device are excluded: before the clock starts, each process has run the
same on the CPU, and one operation on the device. The times of ``STEADY`` more steps and calls say
what is put off.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from tests.clients.client_architectures import MODELS
from tests.clients.client_generation import prompt

STEPS, TOKENS = 3, 24
STEADY = {"steps": 37, "tokens": 5, "static": 5}
"""Steps, and calls of ``generate``, after the first ones; the last third of them is steady."""
WRITERS = ("Llama", "Qwen3", "Mistral", "Gemma 2", "Mixtral", "Mamba", "Whisper", "GPT-2", "T5")
STATIC = ("Llama", "Qwen3", "Mistral", "Gemma 2", "Mixtral", "GPT-2")
NAMES = {"steps": tuple(MODELS), "tokens": WRITERS, "static": STATIC}
CONTENDERS = ("cpu", "cold", "warm")
Found = dict[str, float]


def steps(name: str, device: str) -> Callable[[], object]:
    """A training step that reads its loss, as ``make clients`` has it."""
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    model, batch = build().to(device).train(), inputs(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> object:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def tokens(name: str, device: str, cache: str = "dynamic") -> Callable[[], object]:
    """24 tokens for two prompts."""
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    model = build().to(device).eval()
    given = inputs(device) if name == "Whisper" else {"input_ids": prompt().to(device)}
    given.pop("labels", None)
    options: dict[str, Any] = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    options |= {
        "do_sample": False,
        **({"cache_implementation": cache} if cache != "dynamic" else {}),
    }
    return lambda: model.generate(**given, **options).tolist()


def static(name: str, device: str) -> Callable[[], object]:
    """The same with a static cache."""
    return tokens(name, device, "static")


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def one(what: str, name: str, device: str) -> Found:
    """``first`` seconds, ``all`` with what follows, and a ``steady`` step's or call's."""
    build = {"steps": steps, "tokens": tokens, "static": static}[what]
    timed(build(name, "cpu"))  # PyTorch and transformers load much of themselves at first use
    torch.ones(1, device=device).add(1).tolist()
    call = build(name, device)
    first = sum(timed(call) for _ in range(STEPS if what == "steps" else 1))
    rest = [timed(call) for _ in range(STEADY[what])]
    steady = statistics.median(rest[-len(rest) // 3 :])
    return {"first": first, "all": first + sum(rest), "steady": steady}


def run(what: str, name: str, contender: str, directory: str) -> Found:
    """A contender in a process of its own."""
    device = "cpu" if contender == "cpu" else "tpu"
    command = [sys.executable, "-m", "bench.first_steps", "--one", what, name, device]
    environment = {**os.environ, "FUSE_CACHE_DIR": directory}
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=600
    )
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(what: str, names: list[str]) -> None:
    """Print a table of one kind; ratios are to CPU eager."""
    print(f"{what}: first / all / steady seconds on the CPU; the device's as multiples of these")
    ratios: dict[str, list[float]] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            found = {one: run(what, name, one, directory) for one in CONTENDERS}
        line = " ".join(f"{found['cpu'][part]:8.3f}" for part in found["cpu"])
        for contender in CONTENDERS[1:]:
            for part, seconds in found[contender].items():
                ratio = seconds / found["cpu"][part]
                ratios.setdefault(f"{contender} {part}", []).append(ratio)
                line += f"  {contender} {part} {ratio:6.2f}"
        print(f"{name:8} {line}", flush=True)
    means = {part: math.exp(statistics.fmean(map(math.log, of))) for part, of in ratios.items()}
    print("geometric means:", ", ".join(f"{part} {mean:.2f}" for part, mean in means.items()))


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help=f"of {', '.join(MODELS)}")
    parser.add_argument("--tier", choices=["auto", "compiled", "uncompiled"], help="FUSE_TIER")
    parser.add_argument("--what", choices=list(STEADY), nargs="*", default=list(STEADY))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    if options.tier:
        os.environ["FUSE_TIER"] = options.tier
    names = options.names or list(MODELS)
    for what in options.what:
        measure(what, [name for name in names if name in NAMES[what]])


if __name__ == "__main__":
    main()
