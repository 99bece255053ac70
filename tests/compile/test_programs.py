"""The bench's programs and the demo's two, compiled: the CPU's losses, and eager mode's dropout."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from bench.programs import PROGRAMS, Program
from examples import chargpt, digits
from tests.compile.harness import Compile, compare_with_cpu
from tests.marks import slow_but

STEPS = 6
DEMO = {"digits": digits, "chargpt": chargpt}
BY_NAME = {program.name: program for program in PROGRAMS}


@pytest.mark.parametrize("name", slow_but(["mlp"], BY_NAME))
def test_a_program_of_the_bench(name: str):
    program: Program = BY_NAME[name]

    def steps(device: torch.device, compile: Compile) -> list[float]:
        step = compile(program.build(device.type))
        return [step() for _ in range(STEPS)]

    compare_with_cpu(steps, runs=1, rtol=2e-4)


def trained(module: ModuleType, device: str, compile: Compile, dropout: bool) -> dict[str, Any]:
    """Losses of some compiled steps, and the gradients that the last one left."""
    data: Any = module.load_data(device)
    model = module.build_model(device, *([data] if module is chargpt else []))
    if not dropout:
        for layer in model.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
    optimizer = module.build_optimizer(model)
    step = compile(module.train_step)
    torch.manual_seed(3)
    losses = [
        step(model, optimizer, *batch).item()
        for batch in itertools.islice(module.batches(data), STEPS)
    ]
    return {"losses": losses, "gradients": [p.grad for p in model.parameters()]}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEMO)
def test_a_program_of_the_demo(name: str):
    compare_with_cpu(
        lambda device, compile: trained(DEMO[name], device.type, compile, dropout=False),
        runs=1,
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.slow
def test_compiled_and_eagerly_the_same_numbers_are_dropped():
    eager = trained(digits, "tpu", lambda function: function, dropout=True)
    compiled = trained(digits, "tpu", torch.compile, dropout=True)
    assert compiled["losses"] == pytest.approx(eager["losses"], rel=1e-4)
