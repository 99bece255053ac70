"""Programs without end: ``python -m tests.fuzz.campaign --programs 2000 --seed 1 --mode fused``.

Each is run ``RUNS`` times on the device and compared with the CPU after every run, since a known
stream goes other ways than a new one. What fails is made small by hypothesis and printed; settings
and backend are taken from the environment, as in ``FUSE_BACKEND=numpy FUSE_TIER=uncompiled``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

import fuse
from fuse.device import lazy
from tests.fuzz.program import Program, Step, execute
from tests.fuzz.serving import resident
from tests.fuzz.steps import BITS, KINDS, SMOOTH
from tests.programs.harness import CPU, DEVICE, assert_same

RUNS = 6


def programs(longest: int = 14) -> st.SearchStrategy[Program]:
    """Exact ones, which look at bits, and smooth ones."""

    def of(kinds: list[str], smooth: bool) -> st.SearchStrategy[Program]:
        step = st.builds(
            Step,
            st.sampled_from(kinds),
            st.integers(0, 9),
            st.integers(0, 9),
            st.integers(0, 5),
            st.integers(0, 3).map(lambda n: n == 3),
            st.integers(0, 9).map(lambda n: n == 9),
        )
        steps = st.lists(step, min_size=2, max_size=longest).map(tuple)
        return st.builds(Program, steps, st.integers(0, 3).map(lambda n: n == 3), st.just(smooth))

    return of([*KINDS, *BITS], False) | of([*KINDS, *SMOOTH], True)


def check(program: Program) -> None:
    """Assert that every run shows what the CPU's shows."""
    with ThreadPoolExecutor(1) as elsewhere:
        for run in range(RUNS):
            seen, pool, are = execute(program, CPU, run, elsewhere)
            found, others, they_are = execute(program, DEVICE, run, elsewhere)
            where = f"run {run + 1}"
            assert_same(found, seen, 1e-4, 1e-5, where)
            assert they_are == are, f"{where}: {they_are} is not {are}"
            assert_same(others, pool, 1e-4, 1e-5, where)


def campaign(number: int, start: int) -> int:
    """Run that many programs, fifty of a seed; how many seeds failed."""
    failed = done = 0
    began = time.monotonic()
    for at in range(start, start + (number + 49) // 50):
        test = settings(
            max_examples=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )(seed(at)(given(programs())(check)))
        try:
            test()
        except Exception:  # noqa: BLE001  every kind is a finding, and the next seed runs
            failed += 1
            print(f"seed {at}:\n{traceback.format_exc()}", flush=True)
        done += 50
        seconds = time.monotonic() - began
        print(f"{done} programs, {failed} failed, {seconds:.0f} s, {resident()} MB", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", default="fused", choices=("debug", "strict", "fused"))
    parser.add_argument("--whole", type=int, help="operations up to which a trace is one chunk")
    parser.add_argument("--no-ahead", action="store_true", help="no chunk is started ahead")
    given_ = parser.parse_args()
    os.environ.setdefault("FUSE_HOST_FALLBACK", "silent")
    planning = lazy.engine().planning
    planning.whole, planning.ahead = given_.whole, not given_.no_ahead
    torch.manual_seed(0)
    fuse.set_mode(given_.mode)
    sys.exit(bool(campaign(given_.programs, given_.seed)))


if __name__ == "__main__":
    main()
