"""What PyTorch stores of compiled functions: AOTAutograd's cache, artifacts, ``aot_compile``.

Each in processes of its own, for a cache is for the next one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.device.helpers import run

PROGRAM = """
import json, sys, torch, fuse
from torch._dynamo.utils import counters

path, doing = {path!r}, {doing!r}
if doing == "load":
    torch.compiler.load_cache_artifacts(open(path, "rb").read())
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
model = model.to("tpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.ones(8, 16, device="tpu"), torch.zeros(8, 4, device="tpu")


@torch.compile{options}
def loss(x, y):
    return (model(x) - y).square().mean()


@torch.compile{options}
def scores(x):
    return model(x).softmax(-1)


found = []
for _ in range(6):
    value = loss(x, y)
    value.backward()
    optimizer.step()
    optimizer.zero_grad()
    found.append(value.item())
with torch.no_grad():
    found += scores(x)[0].tolist() + scores(x[:3])[0].tolist() + scores(x[:5])[0].tolist()
if doing == "save":
    data, info = torch.compiler.save_cache_artifacts()
    open(path, "wb").write(data)
print(json.dumps([found, fuse.stats()["compiles"], dict(counters["aot_autograd"])]))
"""


def program(tmp_path: Path, name: str, doing: str, options: str = "", **more: str) -> Any:
    """The program on a machine ``name``, which has caches of its own."""
    code = PROGRAM.format(path=str(tmp_path / "artifacts"), doing=doing, options=options)
    settings = {
        "FUSE_CACHE_DIR": str(tmp_path / name / "fuse"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / name / "inductor"),
        "FUSE_TIER": "compiled",
    }
    return json.loads(run(code, fresh=True, **settings | more))


@pytest.mark.slow
def test_artifacts_are_a_whole_cold_start_on_another_machine(tmp_path: Path) -> None:
    wanted, compiles, counts = program(tmp_path, "here", "save")
    assert compiles > 0 and counts["autograd_cache_saved"] == counts["autograd_cache_miss"] > 0
    found, compiles, again = program(tmp_path, "there", "load")
    assert (found, compiles) == (wanted, 0)
    assert again["autograd_cache_hit"] == counts["autograd_cache_saved"]
    assert "autograd_cache_miss" not in again
    found, compiles, again = program(tmp_path, "there", "run")  # they are in its caches now
    assert (found, compiles) == (wanted, 0)
    assert again["autograd_cache_hit"] == counts["autograd_cache_saved"]


@pytest.mark.slow
def test_symbolic_sizes_come_back(tmp_path: Path) -> None:
    wanted, _, counts = program(tmp_path, "here", "save", "(dynamic=True)")
    found, compiles, again = program(tmp_path, "there", "load", "(dynamic=True)")
    assert (found, compiles) == (wanted, 0)
    assert again["autograd_cache_hit"] == counts["autograd_cache_saved"] > 0


@pytest.mark.slow
def test_without_the_caches_nothing_is_stored(tmp_path: Path) -> None:
    wanted, _, counts = program(
        tmp_path, "off", "run", TORCHINDUCTOR_AUTOGRAD_CACHE="0", FUSE_CACHE="off"
    )
    assert not [name for name in counts if name.startswith("autograd_cache")]
    assert wanted == program(tmp_path, "on", "run")[0]


AHEAD = """
import torch

torch.manual_seed(0)
w, x = torch.randn(16, 4), torch.randn(8, 16)


def scored(x, w):
    return torch.nn.functional.gelu(x @ w).sum(-1)


wanted = w.clone().requires_grad_()
scored(x, wanted).sum().backward()
on = w.to("tpu").requires_grad_()
given = x.to("tpu")
"""
SAVE = (
    AHEAD
    + """
compiled = torch.compile(scored, fullgraph=True).aot_compile(((given, on), {{}}))
compiled.save_compiled_function({path!r})
"""
)
LOAD = (
    AHEAD
    + """
compiled = torch.compiler.load_compiled_function(open({path!r}, "rb"))
for _ in range(6):
    torch.testing.assert_close(compiled(given, on).cpu(), scored(x, w))
compiled(given, on).sum().backward()
torch.testing.assert_close(on.grad.cpu(), wanted.grad)
print("same")
"""
)


def test_a_function_compiled_ahead_runs_in_another_process(tmp_path: Path) -> None:
    path = str(tmp_path / "function")
    run(SAVE.format(path=path), fresh=True)
    assert run(LOAD.format(path=path), fresh=True) == "same\n"


CONSTANTS = """
import torch
compiled = torch.compile(lambda x: x + torch.tensor([1.0, 2.0], device="tpu"), fullgraph=True)
x = torch.ones(2, device="tpu")
print(compiled(x).tolist())
try:
    compiled.aot_compile(((x,), {}))
except Exception as error:
    print(error)
"""


def test_a_graph_that_holds_tensors_says_that_it_is_not_stored() -> None:
    first, second = run(CONSTANTS, fresh=True).splitlines()[:2]
    assert first == "[2.0, 3.0]"
    assert "holds constants" in second
