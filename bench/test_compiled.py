"""torch.compile on the device against Fused, CPU eager and Inductor: ratios, turn by turn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.contender import rival_device, turns
from bench.programs import PROGRAMS, Program

TARGET = Path(__file__).parent / "compiled.json"
RIVALS = ("fused", f"{rival_device()} eager", "torch.compile")


@pytest.fixture(scope="module")
def ratios() -> Iterator[dict[str, Any]]:
    """Filled by the tests and written down at the end, with geometric means."""
    found: dict[str, Any] = {}
    yield found
    for rival in RIVALS:
        known = [math.log(one[rival]) for one in found.values() if rival in one]
        if known:
            found.setdefault("geometric mean", {})[rival] = math.exp(sum(known) / len(known))
    TARGET.write_text(json.dumps(found, indent=2) + "\n")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_compiled(program: Program, ratios: dict[str, Any]) -> None:
    names = ["compiled", "fused", f"{rival_device()} eager"]
    names += ["torch.compile"] if program.compilable else []
    found = turns(program.name, names)
    seconds, first = found["seconds"], found["first"]
    ratios[program.name] = {
        **{rival: seconds[rival] / seconds["compiled"] for rival in names[1:]},
        "first step": {rival: first[rival] / first["compiled"] for rival in names[1:]},
    }
    print(program.name, ratios[program.name])
    assert seconds["compiled"] > 0
