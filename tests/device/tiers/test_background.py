"""Compiling in the background: a chunk runs uncompiled until its executable is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fuse.device import lazy
from fuse.engine.compiler import BackgroundCompileWarning, Compiler
from tests.device.helpers import DEVICE, recorder, run
from tests.device.tiers.stuck import stuck_compiler
from tests.lanes import not_on_accelerators
from tests.programs.harness import compare_with_cpu, train

pytestmark = not_on_accelerators("no call runs uncompiled there")


@pytest.fixture
def never_compiled() -> Iterator[Compiler]:
    """Nothing is in memory and nothing ever compiles."""
    with recorder(tier="compiled"), stuck_compiler() as compiler:
        yield compiler
    assert compiler.counts.uncompiled_chunks > 0 and compiler.counts.compiled == 0


def views(device: torch.device) -> list[torch.Tensor]:
    x = torch.arange(24.0).view(4, 6).to(device)
    y = x.t()[1:4] * 2
    x[:, 1] = y[0]
    x[2:].mul_(0.5).add_(x[:2].mean())
    z = torch.cat([x, x.flip(1)], 1).to(torch.bfloat16)
    w = x.clone().as_strided((3, 2), (6, 3), 1).sigmoid()
    return [x, y, z, w, (x > 3).sum(0), x.view(torch.int32)[0] % 7, torch.empty(0, device=device)]


def numbers(device: torch.device) -> list[torch.Tensor]:
    x = torch.linspace(-1, 1, 8).to(device)
    found = [x * (step / 3) + step for step in range(4)]
    found += [x[step : step + 3] * 2 for step in range(4)]
    found += [(x * 100).to(torch.uint8) / 300, x.to(torch.int8) / 1000]
    return [*found, x + torch.tensor(2.5), torch.tensor(1.5, device=device) * 2, x.long() // 2]


def network(device: torch.device) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(27, 8), nn.LayerNorm(8), nn.Linear(8, 3),
    )  # fmt: skip
    batch = (torch.randn(5, 1, 8, 8), torch.arange(5) % 3)
    return train(model, batch, lambda m, x, y: F.cross_entropy(m(x), y), device)


def attention(device: torch.device) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(device)
    x = torch.randn(2, 5, 8).to(device)
    loss = layer(x).square().mean()
    loss.backward()
    return [loss, *(p.grad for p in layer.parameters())]


def bags(device: torch.device) -> list[torch.Tensor]:
    """Kernels that leave results undefined, or give helper results of other shapes."""
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(5, 4, mode="max").to(device)
    x = bag(torch.tensor([[0, 3], [1, 1]]).to(device))
    loss = F.instance_norm(x.view(1, 2, 4)).square().sum() + F.layer_norm(x, (4,)).pow(3).sum()
    loss.backward()
    return [loss, bag.weight.grad]


@pytest.mark.parametrize("program", [views, numbers, network, attention, bags])
def test_uncompiled_operations_give_the_cpus_results(
    never_compiled: Compiler, program: Any
) -> None:
    compare_with_cpu(program)


def test_random_numbers_are_those_of_compiled_operations(never_compiled: Compiler) -> None:
    def draw() -> list[torch.Tensor]:
        torch.manual_seed(3)
        x = torch.randn(3, 5, device=DEVICE)
        return [x.cpu(), F.dropout(x, 0.5).cpu(), torch.randint(9, (4,), device=DEVICE).cpu()]

    found = draw()
    compiled = Compiler(lazy.engine().executables, background=False)
    lazy.core().forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy.engine().planning, "compiler", compiled)
        expected = draw()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


TRAINING = """
import json, time, torch, fuse
from fuse.device import lazy
lazy.core().set_tier(1)  # recorded at once, also while it is being compiled
torch.manual_seed(0)
x = torch.randn(8, 8)
d = x.to("tpu")
found = []
seen = {}
for step in range(30000):
    y = d
    for _ in range(3):
        y = (y @ d).tanh()
    found.append(y.sum().item())
    seen = fuse.stats()["background"]
    if seen["compiled"] and step > 3:
        break
    time.sleep(0.005)
print(json.dumps({"seen": seen, "found": sorted(set(found)), "compiles": fuse.stats()["compiles"]}))
"""


def test_later_runs_use_the_executable_when_it_is_ready() -> None:
    out = json.loads(run(TRAINING, FUSE_TIER="auto", FUSE_CACHE="off"))
    assert out["seen"]["uncompiled_chunks"] >= 1 and out["seen"]["failed"] == 0
    assert out["compiles"] == out["seen"]["compiled"] == 1
    torch.manual_seed(0)
    x = y = torch.randn(8, 8)
    for _ in range(3):
        y = (y @ x).tanh()
    assert out["found"] == pytest.approx([y.sum().item()] * len(out["found"]), rel=1e-4)


LEAVING = """
import torch, fuse
from fuse.device import lazy
lazy.core().set_tier(1)
x = torch.randn(16, 16, device="tpu")
for length in range(1, 12):
    y = x
    for _ in range(4 * length):
        y = torch.tanh(y @ x) * 0.5
    y.sum().item()
print(fuse.stats()["background"]["pending"])
"""


@pytest.mark.slow
def test_a_process_that_ends_while_compiling_ends_well() -> None:
    assert int(run(LEAVING, FUSE_TIER="auto", FUSE_CACHE="off")) > 0


def test_subnormal_numbers_count_as_zero(never_compiled: Compiler) -> None:
    """As compiled, on the threads of the kernels too."""
    x = torch.full((1 << 17,), 2.0).mul_(2.0**-130)
    assert not (x.to(DEVICE) > 0).any()
    assert bool((x > 0).all())


def test_a_failure_is_printed_where_warnings_are_errors(capfd: pytest.CaptureFixture[str]) -> None:
    """A warning raised as an error from inside a run would lose what the program computed."""
    compiler = Compiler(lazy.engine().executables, background=True)
    failed: Future[Any] = Future()
    failed.set_exception(ValueError("no such instruction"))
    for _ in range(2):
        assert compiler.ready("a digest", failed) is None
    text = "BackgroundCompileWarning: compiling in the background failed"
    assert capfd.readouterr().err.count(text) == 1
    with pytest.warns(BackgroundCompileWarning, match="no such instruction"):
        assert compiler.ready("another", failed) is None


TEAMS = """
import os, time, torch

def threads():
    return set(os.listdir("/proc/self/task"))

large = torch.ones(1000, 1000)
large.add(1)  # the team of the thread that computes
x = large.to("tpu")
(x[:8, :8] + 1).sum().item()
from fuse.device import lazy
from tests.device.helpers import recorder
from tests.device.tiers.stuck import stuck_compiler
with recorder(tier="compiled"), stuck_compiler() as compiler:
    (x[:8, :8] * 2).sum().item()
    before = threads()
    assert (x * 2 + x).sum().item() == 3e6
    assert compiler.counts.uncompiled_chunks > 1
    end = time.monotonic() + 30
    while threads() - before and time.monotonic() < end:
        time.sleep(0.01)  # one that has ended is listed for a moment
    print(len(threads() - before))
"""


def test_no_thread_that_has_computed_keeps_a_team() -> None:
    """One beside the main thread's makes every kernel of PyTorch's for the CPU slow."""
    assert run(TEAMS, fresh=True, OMP_NUM_THREADS="2") == "0\n"
