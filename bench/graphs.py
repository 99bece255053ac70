"""A training step replayed as a graph against eager, ``torch.compile`` and ``jax.jit``, by turns.

python -m bench.graphs [PROGRAM ...]
"""

from __future__ import annotations

import sys

from bench.contender import turns

NAMES = ("mlp", "digits")
RIVALS = ("fused", "compiled", "jax.jit")


def main(*names: str) -> None:
    """Print a line a program: microseconds of a replay and its read, and what rivals take."""
    for name in names or NAMES:
        seconds = turns(name, ["graph", *RIVALS])["seconds"]
        graph = seconds["graph"]
        ratios = ", ".join(f"{rival} {seconds[rival] / graph:.2f}" for rival in RIVALS)
        print(f"{name}: a replay {graph * 1e6:.0f} us; in replays: {ratios}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
