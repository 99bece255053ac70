"""Long programs make a bounded number of executables: deep ones, long loops.

The counts are the planner's and the recorder's, not the backend's: where compiling would be
most of the time, the NumPy backend, which has nothing to compile, runs the program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from fuse.device import lazy
from tests.device.helpers import DEVICE, Block, made, recorder, run
from tests.lanes import only_in

pytestmark = only_in("compiled", "accelerator", reason="counts what programs compile")


@pytest.fixture
def numpy_backend() -> Iterator[None]:
    before = fuse.get_backend()
    fuse.set_backend("numpy")
    yield
    fuse.set_backend(before)


def compiles() -> int:
    return int(fuse.stats()["compiles"])


def executables_of(layers: int, steps: int = 2) -> int:
    """Executables that training a transformer of so many layers makes, from nothing."""
    lazy.engine().executables.cache.clear_memory()
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(layers)]).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(2, 4, 8).to(DEVICE)
    before = compiles()
    with recorder():
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            torch.tpu.synchronize()
    return compiles() - before


def test_a_deep_transformer_makes_no_more_executables_than_a_shallow_one(
    numpy_backend: None,
) -> None:
    shallow = executables_of(4)
    assert 1 < executables_of(48) <= shallow


TRAINING_STEPS = 1000


def test_a_thousand_steps_of_training_make_nothing_after_the_first() -> None:
    """A new learning rate each step, a last batch of another size, a read every 37 steps."""
    torch.manual_seed(0)
    data, labels = torch.randn(70, 6).to(DEVICE), (torch.arange(70) % 3).to(DEVICE)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    with recorder():
        for step in range(TRAINING_STEPS):
            if step == 80:
                before = made()
            rows = slice(step % 5 * 16, step % 5 * 16 + 16)  # the fifth has six rows
            optimizer.param_groups[0]["lr"] = 1e-2 / (1 + step * 0.001)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data[rows]), labels[rows])
            loss.backward()
            optimizer.step()
            if step % 37 == 36:
                losses.append(loss.item())
        torch.tpu.synchronize()
    assert made() == before
    assert losses[-1] < losses[0] and len(losses) == TRAINING_STEPS // 37


def made_after(steps: int, step: Callable[[int], object], first: int = 3) -> int:
    """Executables made by a loop after its first steps."""
    for number in range(first):
        step(number)
    torch.tpu.synchronize()
    before = made()
    for number in range(first, steps):
        step(number)
    torch.tpu.synchronize()
    return made() - before


def test_two_epochs_over_minibatches_make_nothing_after_the_third_step() -> None:
    torch.manual_seed(0)
    data, wanted = torch.randn(48, 4).to(DEVICE), torch.randn(48, 2).to(DEVICE)
    model = nn.Linear(4, 2).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(number: int) -> None:
        start = number % 12 * 4
        optimizer.zero_grad()
        (model(data[start : start + 4]) - wanted[start : start + 4]).square().mean().backward()
        optimizer.step()

    with recorder():
        assert made_after(24, step) == 0


def test_decoding_into_a_preallocated_cache_makes_nothing_after_the_third_step() -> None:
    torch.manual_seed(0)
    length, width = 40, 8
    embed, qkv = nn.Embedding(11, width).to(DEVICE), nn.Linear(width, 3 * width).to(DEVICE)
    keys = torch.zeros(1, length, width, device=DEVICE)
    values = torch.zeros(1, length, width, device=DEVICE)
    places = torch.arange(length, device=DEVICE)
    tokens = [1]

    @torch.no_grad()
    def step(t: int) -> None:
        q, k, v = qkv(embed(torch.tensor([tokens[-1]]).to(DEVICE))).chunk(3, -1)
        keys[:, t], values[:, t] = k, v
        scores = (keys @ q.unsqueeze(-1)).squeeze(-1).masked_fill(places > t, float("-inf"))
        mixed = (scores.softmax(-1).unsqueeze(1) @ values).squeeze(1)
        tokens.append(int((mixed @ embed.weight.t()).argmax()))

    with recorder():
        assert made_after(length, step) == 0
    assert keys.abs().sum(-1).min().item() > 0  # every position was written


def test_a_loop_without_reads_is_bounded_in_traces_and_memory() -> None:
    """Ten thousand operations here; bench/test_loops.py has a hundred thousand."""
    with recorder(limit=1024):
        x = torch.zeros(8, device=DEVICE)
        w = torch.full((8,), 0.5, device=DEVICE)
        seen, memory = [], []
        before = torch.tpu.memory_allocated()  # what other tests left is no part of it
        for step in range(2000):
            x = (x * w + 1).tanh() * 1.5 - 0.25
            if step % 500 == 499:
                stats = fuse.stats()
                seen.append((stats["known_calls"], made()))
                memory.append(torch.tpu.memory_allocated())
        assert seen[1:] == seen[:1] * 3
        assert max(memory) - before <= 1 << 20


def test_a_model_of_fixed_shapes_over_a_growing_sequence() -> None:
    """What grows is set apart, so that the model is compiled with it and once without it.

    Where memory is not the host's it is compiled for two lengths, and once for the bucket of all.
    """
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.Tanh())]
    model = nn.Sequential(nn.Embedding(16, 8), *layers, nn.Linear(8, 16))

    def generate(device: torch.device) -> list[int]:
        net = model.to(device)
        sequence = torch.zeros(1, 1, dtype=torch.long, device=device)
        with torch.no_grad():
            for _ in range(7):
                found = net(sequence[:, -1:]).argmax(-1)
                sequence = torch.cat([sequence, found], 1)
                assert 0 <= sequence[0, -1].item() < 16
        return sequence.tolist()

    expected = generate(torch.device("cpu"))
    with recorder(tier="compiled"):
        for _ in range(3):
            told = fuse.explain(generate, DEVICE).to_dict()
            assert generate(DEVICE) == expected
    chunks = [chunk for trace in told["traces"] for chunk in trace["chunks"]]
    models = [one["executable"] for one in chunks if len(one["operations"]) > 12]
    # The first trace also makes the sequence, the second is the first of its form.
    most = 3 if lazy.engine().backend.shares_host_memory() else 4
    assert len(models) == 7 and len(set(models)) == most


KEYS = """
import json, torch
from torch import nn
import fuse
from fuse.device import lazy
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.LayerNorm(6)) for _ in range(6)]
model = nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(6, 2)).to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(4, 6).to("tpu")
for _ in range(3):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
print(json.dumps([lazy.engine().executables.used(), fuse.stats()["cuts"]]))
"""


@pytest.mark.slow
def test_two_processes_give_the_same_plan_keys() -> None:
    found = [
        json.loads(run(KEYS, PYTHONHASHSEED=seed, FUSE_BACKEND="numpy", FUSE_CACHE="off"))
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    keys, _ = found[0]
    assert len(keys) > 2  # of a first step, and of all later ones
