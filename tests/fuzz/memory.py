"""What a process holds after random programs: ``python -m tests.fuzz.memory 10000``.

Every program is run ``RUNS`` times on the device, and every tenth is waited for until nothing is
being compiled. Settings are taken from the environment; each program is compiled, with
``FUSE_TIER=auto`` in the background. Prints a line of JSON for every hundred programs, and one in
the end.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch

import fuse
from fuse.config import TIERS
from fuse.device import lazy
from tests.fuzz.program import Program, Step, execute
from tests.fuzz.serving import resident
from tests.fuzz.steps import BITS, KINDS, SMOOTH
from tests.programs.harness import DEVICE

RUNS = 6
EVERY = 100


def drawn(chance: random.Random) -> Program:
    """One as ``campaign.programs`` makes them, without hypothesis, which remembers its own."""
    smooth = chance.random() < 0.5
    kinds = [*KINDS, *(SMOOTH if smooth else BITS)]
    steps = tuple(
        Step(
            chance.choice(kinds),
            chance.randint(0, 9),
            chance.randint(0, 9),
            chance.randint(0, 5),
            chance.randint(0, 3) == 3,
            chance.randint(0, 9) == 9,
        )
        for _ in range(chance.randint(2, 14))
    )
    return Program(steps, chance.randint(0, 3) == 3, smooth)


def figures(programs: int) -> dict[str, int]:
    """What there is after that many programs: megabytes, and what was compiled and forgotten."""
    gc.collect()
    stats = fuse.stats()
    return {
        "programs": programs,
        "megabytes": resident(),
        "compiles": stats["compiles"],
        "prunes": stats["prunes"],
        "known_calls": stats["known_calls"],
        "entries": stats["cache"]["memory"]["entries"],
        "python_blocks": sys.getallocatedblocks(),
    }


def settle() -> None:
    """Wait until nothing is being compiled."""
    while fuse.stats()["background"]["pending"]:
        time.sleep(0.001)


def main() -> None:
    """``N [SEED]``."""
    number, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    os.environ.setdefault("FUSE_HOST_FALLBACK", "silent")
    chance = random.Random(seed)
    torch.manual_seed(0)
    lazy.core().set_tier(TIERS.index("compiled"))  # recorded at once
    with ThreadPoolExecutor(1) as elsewhere:
        for at in range(1, number + 1):
            program = drawn(chance)
            for run in range(RUNS):
                execute(program, DEVICE, run, elsewhere)
            if at % 10 == 0:
                settle()
            if at % EVERY == 0 or at == number:
                print(json.dumps(figures(at)), flush=True)


if __name__ == "__main__":
    main()
