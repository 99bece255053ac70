"""Strict against Fused against PyTorch CPU eager, ``torch.compile`` and hand-written JAX."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fuse
from bench.handwritten import HANDWRITTEN
from bench.measure import interleaved, warm_up
from bench.programs import PROGRAMS, Program, Step


def _in_mode(mode: str, step: Step) -> Step:
    def run() -> float:
        fuse.set_mode(mode)
        return step()

    return run


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: Program, benchmark: Any, results: dict[str, Any]) -> None:
    torch.compiler.reset()
    contenders: dict[str, Step] = {"cpu eager": program.build("cpu")}
    if program.compilable:
        contenders["torch.compile"] = torch.compile(program.build("cpu"))
    for mode in ("strict", "fused"):
        contenders[mode] = _in_mode(mode, program.build("tpu"))
    if program.name in HANDWRITTEN:
        contenders["jax.jit"] = HANDWRITTEN[program.name]()
    for step in contenders.values():
        warm_up(step)
    fuse.reset_stats()
    medians = interleaved(contenders)
    stats = fuse.stats()
    results[program.name] = {
        "seconds": medians,
        "compiles": stats["compiles"],
        "host_fallbacks": stats["host_fallbacks"],
    }
    fuse.set_mode("fused")
    benchmark.extra_info.update(medians)
    benchmark.pedantic(contenders["fused"], rounds=5, iterations=1)
    assert medians["fused"] > 0
