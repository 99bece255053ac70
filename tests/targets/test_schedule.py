"""A scheduled program, read from what XLA writes, and what its instructions take at least."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fuse.backends.xla.targets import account, schedule
from fuse.backends.xla.targets.hlo import parse
from fuse.backends.xla.targets.worker import of_schedule
from fuse.backends.xla.tpu.bound import reader
from fuse.backends.xla.tpu.targets import GENERATIONS

PROGRAM = """HloModule jit_run, is_scheduled=true

ENTRY %main (x: f32[1024,1024], y: f32[1024,1024]) -> f32[1024,1024] {
  %x = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %y = f32[1024,1024]{1,0:T(8,128)} parameter(1)
  %near = f32[1024,1024]{1,0:T(8,128)S(1)} copy(%x)
  %sum = f32[1024,1024]{1,0:T(8,128)} add(%near, %y)
  ROOT %out = f32[1024,1024]{1,0:T(8,128)} dot(%sum, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""  # noqa: E501
ARRAYS = """BufferAssignment:
allocation 0: size 4194304, parameter 0, shape |f32[1024,1024]| at ShapeIndex {}, maybe-live-out:
allocation 1: size 4194304, parameter 1, shape |f32[1024,1024]| at ShapeIndex {}:
allocation 2: size 5000, preallocated-temp:
allocation 3: size 7000, color 1, preallocated-temp:
"""
V5E = GENERATIONS["v5e"].machine
ARRAY = 4 << 20


def write(folder: str, program: str = PROGRAM) -> None:
    of = Path(folder) / "module_0001.jit_run.after_optimizations"
    Path(f"{of}-buffer-assignment.txt").write_text(ARRAYS)
    Path(f"{of}_after_buffer_assignment.txt").write_text(program)


def test_the_schedule_is_there_long_before_the_code() -> None:
    def compiles(options: dict[str, Any]) -> None:
        write(options["xla_dump_to"])
        time.sleep(60)

    started = time.monotonic()
    found = schedule.scheduled(compiles)
    assert time.monotonic() - started < 30
    assert (found.temporary_bytes, found.alias_bytes) == (5000, ARRAY)
    made = of_schedule(found, reader(V5E), 1.0)
    assert made.scheduled
    assert made.peak_bytes == 2 * ARRAY + 5000  # the result takes an argument's memory


def test_half_a_program_is_waited_for(tmp_path: Path) -> None:
    assert schedule.read(tmp_path) is None
    for end in range(PROGRAM.index("ENTRY"), len(PROGRAM) - 2, 40):
        write(str(tmp_path), PROGRAM[:end])
        assert schedule.read(tmp_path) is None
    write(str(tmp_path))
    assert schedule.read(tmp_path) is not None


def test_what_the_compiler_refuses_is_raised() -> None:
    def refuses(options: dict[str, Any]) -> None:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        schedule.scheduled(refuses)
    with pytest.raises(RuntimeError, match="has written no schedule"):
        schedule.scheduled(lambda options: None)


def test_instructions_take_their_bytes_or_their_products() -> None:
    costs = {one.name: one for one in account.sums(parse(PROGRAM), reader(V5E)).costs}
    moved = {"near": 1, "sum": 2}  # arrays in the device's memory: the copy is in the vector memory
    for name, arrays in moved.items():
        seconds = arrays * ARRAY / V5E.bandwidth
        assert V5E.seconds(costs[name].cycles) == pytest.approx(seconds, rel=1e-3)
    products = 2 * 1024**3 / V5E.flops
    assert V5E.seconds(costs["out"].cycles) == pytest.approx(
        max(products, 3 * ARRAY / V5E.bandwidth), rel=1e-3
    )
