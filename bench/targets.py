"""The programs compiled for a TPU: cycles and launches of Strict, Fused and ``jax.jit`` by hand.

Run as ``python -m bench.targets v5e [PROGRAM ...]``; needs libtpu and no TPU. Every figure is the
compiler's estimate. Prints a row a program as it is done, and the geometric means at the end.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import fuse
from bench.handwritten import HANDWRITTEN
from bench.programs import PROGRAMS
from fuse.backends.xla.tpu.targets import TargetName, find

MODES = ("strict", "fused")
BUILDERS = {program.name: program.build for program in PROGRAMS}


def tpu(name: str) -> TargetName:
    """The TPU called so."""
    found = find(name)
    assert found is not None, f"no TPU is called {name}"
    return found


def measured(target: str, name: str, mode: str) -> tuple[int, int, int]:
    """Cycles, launches and refused operations of one step."""
    fuse.set_mode(mode)
    try:
        report = fuse.compile_for(target, BUILDERS[name]("tpu"), advice=False)
    finally:
        fuse.set_mode("fused")
    return report.cycles, report.launches, len(report.failures)


def by_hand(target: str, name: str) -> int | None:
    """Cycles of the step written by hand, in a process of its own: libtpu is loaded into it."""
    if name not in HANDWRITTEN:
        return None
    environment = os.environ | {
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": tpu(target).generation.accelerator,
        "TPU_WORKER_HOSTNAMES": "localhost",
    }
    found = subprocess.run(
        [sys.executable, "-m", "bench.targets", "--by-hand", target, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
        timeout=3600,
        check=True,
    )
    return int(found.stdout.split()[-1])


def compile_by_hand(target: str, name: str) -> int:
    """The same in this process: what ``jax.jit`` is given is compiled for the target as well."""
    # Imported here: only the process that loads libtpu needs them.
    import jax  # noqa: PLC0415

    from fuse.backends.xla.targets.worker import estimate  # noqa: PLC0415
    from fuse.backends.xla.tpu.costs import cost  # noqa: PLC0415
    from fuse.backends.xla.tpu.worker import topology  # noqa: PLC0415

    sharding = jax.sharding.SingleDeviceSharding(topology(tpu(target)).devices[0])
    cycles: list[int] = []
    plain = jax.jit

    def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with jax.default_matmul_precision("highest"):  # PyTorch's default
                given = jax.tree.map(
                    lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype), arguments
                )
                placed = plain(function, in_shardings=sharding, out_shardings=sharding, **options)
                cycles.append(estimate(placed.lower(*given).compile(), cost, 0.0).cycles)
            return plain(function)(*arguments)

        return call

    jax.jit = jit  # type: ignore[assignment]
    try:
        HANDWRITTEN[name]()()
    finally:
        jax.jit = plain
    return sum(cycles)


def main() -> None:
    """Print the table."""
    target, *names = sys.argv[1:]
    if target == "--by-hand":
        print(compile_by_hand(*names))
        return
    tpu(target)  # of a GPU there are no cycles to compare
    print("| program | Strict | launches | Fused | launches | Strict / Fused | Fused / by hand |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    ratios: list[float] = []
    beside: list[float] = []
    for name in names or BUILDERS:
        (strict, strict_runs, refused), (fused, runs, also) = (
            measured(target, name, mode) for mode in MODES
        )
        hand = by_hand(target, name)
        ratio = "" if hand is None else f"{fused / hand:.2f}"
        beside += [] if hand is None else [fused / hand]
        ratios.append(strict / fused)
        note = f" ({refused + also} refused)" if refused + also else ""
        print(
            f"| {name}{note} | {strict:,} | {strict_runs} | {fused:,} | {runs} "
            f"| {strict / fused:.2f} | {ratio} |",
            flush=True,
        )
    print()
    for text, found in (("Strict / Fused", ratios), ("Fused / by hand", beside)):
        if found:
            mean = math.exp(sum(map(math.log, found)) / len(found))
            print(f"{text}, geometric mean of {len(found)}: {mean:.2f}")


if __name__ == "__main__":
    main()
