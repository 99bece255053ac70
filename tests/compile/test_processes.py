"""Compiled programs in processes of their own: what the next one compiles, and CPU programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.device.helpers import run as run_in_process
from tests.lanes import only_in

PROGRAM = """
import json, warnings
warnings.simplefilter("ignore")
import torch, fuse
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to("tpu")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.ones(3, 4).to("tpu")

@torch.compile
def step(x):
    optimizer.zero_grad()
    loss = net(x).square().sum()
    loss.backward()
    optimizer.step()
    return loss

losses = [step(x).item() for _ in range(6)]
with torch.no_grad():
    losses.append(torch.compile(net)(x).sum().item())
from fuse.device import lazy
assert lazy.engine().executables.cache.flush(60)
print(json.dumps({"losses": losses, **fuse.stats()}))
"""
INDUCTOR = """
import warnings
warnings.simplefilter("ignore")
import sys, torch
seen = []
import torch._inductor.compile_fx as compile_fx
compile_fx.compile_fx = lambda graph, inputs, **rest: seen.append(1) or graph.forward
print(torch.compile(lambda x: x.sin() + 1)(torch.zeros(2)).tolist(), seen)
print(torch.compile(lambda x: x.cos(), backend="inductor")(torch.zeros(2)).tolist(), seen)
assert not torch.tpu.is_initialized()
assert "jax" not in sys.modules
"""


NAMED_FIRST = """
import warnings
warnings.simplefilter("ignore")
import torch

@torch.compile(backend="tpu")
def function(x):
    return x + 1

print(function(torch.zeros(2, device="tpu")).tolist())
"""


def run(code: str, folder: Path) -> str:
    return run_in_process(code, fresh=True, FUSE_CACHE_DIR=str(folder))


@pytest.mark.slow
@only_in("compiled", "accelerator", reason="counts what is compiled before the process ends")
def test_the_next_process_compiles_nothing(tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    code = f"import runpy; runpy.run_path({str(file)!r}, run_name='__main__')"
    results: list[dict[str, Any]] = [
        json.loads(run(code, tmp_path / "cache").splitlines()[-1]) for _ in range(2)
    ]
    assert results[0]["compiles"] > 0
    assert results[1]["compiles"] == 0
    assert results[1]["losses"] == results[0]["losses"]
    assert results[1]["compiled"]["by_operation"] == 0


def test_graphs_of_cpu_tensors_go_to_inductor_and_start_nothing(tmp_path: Path):
    assert run(INDUCTOR, tmp_path).splitlines() == ["[1.0, 1.0] [1]", "[1.0, 1.0] [1, 1]"]


def test_the_backend_may_be_named_before_the_device_is_used(tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text(NAMED_FIRST)
    code = f"import runpy; runpy.run_path({str(file)!r}, run_name='__main__')"
    assert run(code, tmp_path / "cache") == "[1.0, 1.0]\n"
