"""Programs whose sizes change: ``python -m tests.fuzz.sizes_campaign --programs 2000 --seed 0``.

Each runs at all of ``sizes.SIZES`` and is compared with the CPU, with poison for padding, and the
share of padding that is told with what the arrays have. By default on NumPy's backend, as one
whose memory is not the host's; ``FUSE_BACKEND=tests.accelerator:create`` compiles them.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import traceback
import warnings

os.environ.setdefault("FUSE_BACKEND", "numpy")
os.environ.setdefault("FUSE_HOST_FALLBACK", "silent")

import torch

import fuse
from fuse.backends.numpy.backend import NumpyBackend
from fuse.device import lazy
from fuse.engine import arrays
from fuse.errors import RescueWarning
from fuse.families import family
from fuse.families.draft import Padded
from fuse.families.parts import room_of, size_of
from fuse.trace.node import Trace
from tests.device.recompilation.family_helpers import poisoned
from tests.fuzz import sizes
from tests.fuzz.serving import resident


def told_truly(trace: Trace, found: Padded) -> bool:
    """Whether what the report's share of padding counts is what the layouts of both traces hold."""
    true, room = _elements(trace), _elements(found.trace)
    axes_of = {value: axes for value, axes in found.values.items() if value in room}
    return all(
        math.prod(map(room_of, axes)) == room[value]
        and math.prod(map(size_of, axes)) == true.get(value, math.prod(map(size_of, axes)))
        for value, axes in axes_of.items()
    )


def _elements(trace: Trace) -> dict[int, int]:
    parts = [(leaf.value, leaf.layout) for leaf in trace.leaves]
    parts += [(part.value, part.layout) for node in trace.nodes for part in node.parts()]
    return {value: math.prod(layout.shape) for value, layout in parts}


class Watched(family.Families):
    """Families whose shares of padding are checked as they are made."""

    def padded(self, trace: Trace) -> Padded | str | None:  # noqa: D102
        found = super().padded(trace)
        if isinstance(found, Padded):
            assert told_truly(trace, found), found.text()
        return found


def check(seed: int) -> None:
    """Assert that the program of a seed gives at every size what the CPU gives."""
    for found, expected in sizes.beside_the_cpu(seed, "tpu"):
        largest = expected.nan_to_num(0, 0, 0).abs().max().item() if expected.numel() else 0.0
        torch.testing.assert_close(
            found, expected, rtol=2e-4, atol=1e-4 * max(1.0, largest), equal_nan=True
        )


def campaign(number: int, start: int) -> int:
    """Run the programs of that many seeds; how many failed."""
    failed, began = 0, time.monotonic()
    for at in range(start, start + number):
        try:
            check(at)
        except Exception:  # noqa: BLE001  every kind is a finding, and the next seed runs
            failed += 1
            print(f"seed {at}:\n{traceback.format_exc()}", flush=True)
        if (at + 1 - start) % 50 == 0:
            seconds, plans = time.monotonic() - began, fuse.stats()["families"]["plans"]
            print(
                f"{at + 1 - start} programs, {failed} failed, {plans} padded plans, "
                f"{seconds:.0f} s, {resident()} MB",
                flush=True,
            )
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    NumpyBackend.shares_host_memory = lambda self: False  # type: ignore[method-assign]
    arrays.with_room = poisoned
    family.FROM_OF_FEW = family.FROM  # type: ignore[misc]
    lazy.engine().planning.families = Watched()
    warnings.simplefilter("error", RescueWarning)  # a family that failed is a finding
    failed = campaign(given.programs, given.seed)
    print(fuse.stats()["families"])
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
