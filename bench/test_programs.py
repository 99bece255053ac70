"""The device by default, in each mode and tier, and PyTorch's eager, ``torch.compile`` and JAX."""

from __future__ import annotations

from typing import Any

import pytest

import fuse
from bench.contender import rival_device, turns, warm_up
from bench.handwritten import HANDWRITTEN
from bench.programs import PROGRAMS, Program


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: Program, benchmark: Any, results: dict[str, Any]) -> None:
    names = [f"{rival_device()} eager", "default", "fused", "strict"]
    names += ["uncompiled"] if rival_device() == "cpu" else []
    names += ["torch.compile", "compiled"] if program.compilable else []
    names += ["jax.jit"] if program.name in HANDWRITTEN else []
    found = turns(program.name, names)
    results[program.name] = found
    fuse.set_mode("fused")
    step = program.build("tpu")
    warm_up(step)
    benchmark.extra_info.update(found["seconds"])
    benchmark.pedantic(step, rounds=5, iterations=1)
    assert found["seconds"]["fused"] > 0
