"""Which input's memory an output takes: its own old value's, or one that nothing reads any more."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from fuse.backends.base import Chunk
from fuse.backends.xla.aliasing import aliasing
from fuse.backends.xla.backend import XlaBackend, create
from fuse.backends.xla.calling_convention import passed
from fuse.backends.xla.horizontal_packing import LEAST, stacking
from fuse.backends.xla.lowering import by_element
from fuse.plan.planner import plan
from tests.device.helpers import DEVICE
from tests.trace.drawing import Drawing

SWAPPED = """
    n over m = add_(m, g)
    q over p = mul_(p, n)
    """
CASES = {
    "each new value takes its old one's place": (SWAPPED, "n q", "m p", "m>n p>q"),
    "in whichever order they come": (
        "q over p = mul_(p, g)\nn over m = add_(m, g)", "q n", "p m", "p>q m>n",
    ),
    "an old value that is held is not given up": (SWAPPED, "n q", "p", "p>q"),
    "a successor comes before others that would fit": (
        "a = relu(g)\nn over m = add_(m, a)", "a n", "m", "m>n",
    ),
    "through several writes": ("n over m = add_(m, g)\no over n = add_(n, g)", "o", "m", "m>o"),
    "what is read for the last time makes room": ("a = relu(g)\nb = mul(a, h)", "b", "g h", "g>b"),
    "but not before": ("a = relu(g)\nb = mul(g, h)", "a b", "g", "g>b"),
    "another size takes nothing": ("a = relu(g)\nb = relu(w)", "a b", "g w", "g>a w>b"),
}  # fmt: skip


def chunk_of(drawing: Drawing, live: str, donatable: str) -> Chunk:
    (piece,) = plan(drawing.trace, drawing[live], drawing[donatable]).chunks
    return Chunk(piece.nodes, piece.inputs, piece.outputs, piece.donated, 0)


@pytest.mark.parametrize("name", CASES)
def test_pairs(name: str):
    text, live, donatable, wanted = CASES[name]
    drawing = Drawing(text, sizes={"w": 9, "b": 9} if "relu(w)" in text else None)
    chunk = chunk_of(drawing, live, donatable)
    found = aliasing(chunk)
    pairs = [
        f"{drawing.name(chunk.inputs[source].value)}>{drawing.name(chunk.outputs[target])}"
        for source, target in zip(found.donated, found.order, strict=False)
    ]
    assert sorted(pairs) == sorted(wanted.split())
    assert sorted(found.order) == list(range(len(chunk.outputs)))
    assert [found.order[place] for place in found.places] == list(range(len(chunk.outputs)))


def trained(device: torch.device, count: int) -> list[torch.Tensor]:
    """``count`` parameters of one shape after some steps of AdamW."""
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(7, 5, generator=generator) for _ in range(count)]
    parameters = [value.to(device).requires_grad_() for value in parameters]
    x = torch.randn(3, 7, generator=generator).to(device)
    optimizer = torch.optim.AdamW(parameters, lr=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        sum((x @ parameter).square().sum() for parameter in parameters).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in parameters]


@pytest.fixture(scope="module", params=[LEAST - 1, LEAST + 2], ids=["arrays", "stacks"])
def update(request: pytest.FixtureRequest) -> tuple[Chunk, Any]:
    """The chunk and the executable of a steady training step."""
    made: list[tuple[Chunk, Any]] = []
    compile_chunk = XlaBackend.compile

    def noted(self: XlaBackend, chunk: Chunk) -> object:
        made.append((chunk, compile_chunk(self, chunk)))
        return made[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(XlaBackend, "compile", noted)
        lists = (trained(device, request.param) for device in (DEVICE, torch.device("cpu")))
        for found, wanted in zip(*lists, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    return max(made, key=lambda one: len(one[0].donated))


@pytest.mark.skipif(create().platform.name != "cpu", reason="the text of the CPU's program")
def test_an_optimizers_update_copies_nothing(update: tuple[Chunk, Any]):
    """All shapes are one: by position alone, parameters and averages would be mixed up."""
    chunk, executable = update
    text = executable._loaded.hlo_modules()[0].to_string()
    _, passing, donated = passed(chunk, stacking(chunk, by_element))
    rows = sum(map(len, passing.stacked)) - len(passing.stacked)
    assert len(donated) == len(chunk.donated) - rows
    assert len(re.findall(r"\(\d+, \{\}, (?:may|must)-alias\)", text)) == len(donated)
    assert not re.findall(r"= f32\[(?:\d+,)?7,5\]\S* copy\(", text.split("ENTRY")[1])


def test_a_stored_executable_returns_its_results_in_order(update: tuple[Chunk, Any]):
    chunk, executable = update
    _, passing, _ = passed(chunk, stacking(chunk, by_element))
    assert passing.places != tuple(range(len(chunk.outputs))), "so this shows nothing"
    backend = create()
    stored = backend.dump(executable)
    assert stored is not None
    generator = np.random.default_rng(0)
    inputs = [
        np.asarray(generator.random(leaf.layout.shape), leaf.layout.dtype) for leaf in chunk.inputs
    ]
    scalars = np.ones(chunk.scalars).tobytes()
    fresh, loaded = (
        [backend.get(array) for array in backend.execute(one, scalars, arrays)]
        for one, arrays in (
            (which, [backend.put(value.copy(), 0) for value in inputs])
            for which in (executable, backend.load(stored))
        )
    )
    for one, other in zip(fresh, loaded, strict=True):
        np.testing.assert_array_equal(one, other)
