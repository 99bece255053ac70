"""Long and deep programs: bounded memory, a constant number of traces, and the first step."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fuse
from bench.programs import Transformer

ROOT = Path(__file__).resolve().parents[1]
OPERATIONS = 100_000
GROWTH = 64 << 10  # KiB that the process may grow by after its first ten thousand operations
LENGTHS = 512

DEEP = """
import json, sys, time
import torch
from torch import nn
import fuse
torch.manual_seed(0)
layers = [nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
          for _ in range(int(sys.argv[1]))]
model = nn.Sequential(*layers).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(2, 8, 16).to("tpu")
started = time.perf_counter()
model(x).square().mean().backward()
optimizer.step()
torch.tpu.synchronize()
print(json.dumps({"seconds": time.perf_counter() - started, "compiles": fuse.stats()["compiles"]}))
"""

COUNTED = """
import json, warnings
warnings.simplefilter("ignore")
import fuse
from bench.test_loops import generation
generation("tpu")
print(json.dumps(fuse.stats()["compiles"]))
"""


WHOLE = """
from fuse.device import lazy
from fuse.engine.plans import Plans
lazy.engine().planning._plans = Plans(lazy.engine().executables.cache, 1000000)
"""


def first_step(layers: int, whole: bool = False) -> dict[str, Any]:
    """One process's first training step of a transformer, nothing cached; ``whole``: one chunk."""
    found: dict[str, Any] = uncached((WHOLE if whole else "") + DEEP, str(layers))
    return found


def uncached(program: str, *arguments: str, **settings: str) -> Any:
    """What a program prints last, as JSON, in a process of its own with nothing cached."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env=os.environ | {"FUSE_CACHE": "off"} | settings,
        capture_output=True,
        text=True,
        timeout=3600,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_first_step_of_a_deep_transformer(
    results: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """48 layers take less than a quarter of the time of compiling them whole.

    Compiled whole are half as many, which takes at least half as long: all of them would take
    more than 9 GB of memory.
    """
    shallow, deep = first_step(4), first_step(48)
    half = first_step(24, whole=True)
    results["first step"] = {"4 layers": shallow, "48 layers": deep, "24 layers whole": half}
    with capsys.disabled():
        print(f"\nfirst step: 4 layers {shallow}, 48 layers {deep}, 24 layers whole {half}")
    assert half["compiles"] < deep["compiles"] <= shallow["compiles"]
    assert deep["seconds"] * 4 < half["seconds"] * 2


def generation(device: str) -> list[float]:
    """Seconds of each step of greedy generation without a cache: every length is another shape."""
    torch.manual_seed(0)
    net = Transformer(2, 128, 4, True, LENGTHS + 1).to(device).eval()
    tokens = torch.zeros(1, 1, dtype=torch.long, device=device)
    times = []
    with torch.no_grad():
        for _ in range(LENGTHS):
            before = time.perf_counter()
            found = net(tokens)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, found], 1)
            found.item()
            times.append(time.perf_counter() - before)
    return times


def over_cpu(steps: Callable[[str], list[float]], after: int = 0) -> float:
    """Seconds of a step over those of CPU eager, turn by turn: a ratio of medians, of three runs.

    The first ``after`` steps of each run do not count.
    """
    ratios = []
    for _ in range(3):
        ours, theirs = (statistics.median(steps(device)[after:]) for device in ("tpu", "cpu"))
        ratios.append(ours / theirs)
    return statistics.median(ratios)


def test_generation_over_growing_lengths(
    results: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """At most 40 executables in all; then a step takes at most 1.5 times as long as on the CPU."""
    made = uncached(COUNTED)
    fuse.set_mode("fused")
    with pytest.warns(UserWarning, match="runs uncompiled"):
        fused = generation("tpu")
    ratio = over_cpu(generation, after=64)
    results["generation"] = {"executables": made, "fused over cpu eager": ratio}
    with capsys.disabled():
        print(f"\ngeneration: {results['generation']}, first {sum(fused):.1f} s")
    assert made <= 40
    assert ratio <= 1.5


def cached_generation(device: str) -> list[float]:
    """Seconds a token with a key-value cache of a fixed length, 4 MB, written in place."""
    torch.manual_seed(0)
    width, heads, places = 256, 4, 1024
    embed, head = nn.Embedding(96, width).to(device), nn.Linear(width, 96).to(device)
    layers = [[nn.Linear(width, 3 * width).to(device), nn.Linear(width, width).to(device)]
              for _ in range(2)]  # fmt: skip
    shape = (1, heads, places, width // heads)
    caches = [[torch.zeros(shape, device=device) for _ in "kv"] for _ in layers]
    token, order = torch.zeros(1, 1, dtype=torch.long, device=device), torch.arange(places)
    order = order.to(device)
    times = []
    with torch.no_grad():
        for place in range(LENGTHS):
            before = time.perf_counter()
            x = embed(token)
            for (qkv, out), (keys, values) in zip(layers, caches, strict=True):
                parts = qkv(x).split(width, 2)
                q, k, v = (part.view(1, 1, heads, -1).transpose(1, 2) for part in parts)
                keys[:, :, place : place + 1], values[:, :, place : place + 1] = k, v
                scores = (q @ keys.transpose(2, 3) / 8).masked_fill(order > place, float("-inf"))
                x = x + out((scores.softmax(-1) @ values).transpose(1, 2).reshape(1, 1, width))
            token = head(x)[:, -1].argmax(-1, keepdim=True)
            token.item()
            times.append(time.perf_counter() - before)
    return times


def test_generation_with_a_cache(
    results: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is compiled after the third token; how long a token takes is noted."""
    fuse.set_mode("fused")
    cached_generation("tpu")
    before = fuse.stats()["compiles"]
    results["cached generation"] = {"fused over cpu eager": over_cpu(cached_generation)}
    made = fuse.stats()["compiles"] - before
    with capsys.disabled():
        print(f"\ncached generation: {results['cached generation']}")
    assert made == 0


def test_a_loop_of_a_hundred_thousand_operations(results: dict[str, Any]) -> None:
    fuse.set_mode("fused")
    x = torch.zeros(64, device="tpu")
    w = torch.full((64,), 0.5, device="tpu")
    seen: list[tuple[int, int]] = []
    memory: list[int] = []
    started = time.perf_counter()
    for step in range(OPERATIONS // 5):
        x = (x * w + 1).tanh() * 1.5 - 0.25
        if step % 4000 == 3999:
            stats = fuse.stats()
            seen.append((stats["known_calls"], stats["compiles"]))
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    torch.tpu.synchronize()
    results["loop of 100,000 operations"] = {
        "microseconds": {"an operation": (time.perf_counter() - started) / OPERATIONS * 1e6}
    }
    assert len(set(seen[1:])) == 1
    assert memory[-1] - memory[0] <= GROWTH
