"""Thirty everyday loops with the default settings, against CPU eager.

    python -m bench.everyday                            # all loops
    python -m bench.everyday gan ppo --what steady --tier compiled --json found.json

steady: milliseconds a step after a warm-up, the ratio, and the ratio of all cores' time, which
depends less on what else the machine does; what share of the operations was recorded (the others
ran uncompiled), and chunks, chunks whose executable was not there yet, and compiles a step.
first: seconds of the first 500 steps with an empty cache; warm: with the cache that these left.
Ratios are CPU eager's time over the device's: above 1 the device is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

from bench.everyday.loops import LOOPS
from bench.everyday.measure import TIERS, Options, measure

WHAT = ("steady", "first", "warm")
HEADS = {
    "steady": f"{'cpu ms':>8}{'tpu ms':>8}{'ratio':>7}{'cores':>7}{'rec %':>7}{'chunks':>8}"
    f"{'unc.':>7}{'comp.':>7}",
    "first": f"{'cpu s':>8}{'first':>8}{'ratio':>7}",
    "warm": f"{'warm s':>8}{'ratio':>7}",
}


def ratio(found: dict[str, Any]) -> float:
    """How many times as fast as CPU eager the device is."""
    return found["cpu"] / found["tpu"]


def cells(what: str, found: dict[str, Any]) -> str:
    """One measurement's part of a row."""
    if what == "warm":
        return f"{found['tpu']:8.2f}{ratio(found):7.2f}"
    if what == "first":
        return f"{found['cpu']:8.2f}{found['tpu']:8.2f}{ratio(found):7.2f}"
    stats = found["stats"]
    operations = stats["recorded"] + stats["uncompiled"]
    share = 100 * stats["recorded"] / max(1, operations)
    line = f"{found['cpu'] * 1e3:8.2f}{found['tpu'] * 1e3:8.2f}{ratio(found):7.2f}"
    line += f"{ratio(found['cores']):7.2f}{share:7.0f}"
    each = (stats[key] / stats["steps"] for key in ("chunks", "uncompiled chunks", "compiles"))
    return line + "{:8.2f}{:7.2f}{:7.3f}".format(*each)


def summary(what: str, found: dict[str, dict[str, Any]]) -> str:
    """The geometric mean of a measurement's ratios, and how many are low."""
    ratios = {name: ratio(one[what]) for name, one in found.items()}
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    least = min(ratios, key=lambda name: ratios[name])
    low = [sum(one < bound for one in ratios.values()) for bound in (0.95, 0.85)]
    return (
        f"{what:7} geometric mean {mean:.3f}; below 0.95: {low[0]}, below 0.85: {low[1]} "
        f"of {len(ratios)}; the least {ratios[least]:.2f}, {least}"
    )


def parsed() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Options()
    parser.add_argument("names", nargs="*", help=f"of {', '.join(LOOPS)}; all without")
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--tier", choices=list(TIERS), default="auto", help="FUSE_TIER")
    parser.add_argument("--steps", type=int, default=default.steps, help="of first and warm")
    parser.add_argument("--rounds", type=int, default=default.rounds, help="turns of each")
    parser.add_argument("--turn-seconds", type=float, default=default.turn_seconds)
    parser.add_argument("--warm-seconds", type=float, default=default.warm_seconds)
    parser.add_argument("--json", type=Path, help="where the results go as well")
    options = parser.parse_args()
    unknown = set(options.names) - set(LOOPS)
    if unknown:
        parser.error(f"no loop {', '.join(sorted(unknown))}; there are {', '.join(LOOPS)}")
    return options


def main() -> None:
    """Measure what the command line asks for, and print it row by row."""
    asked = parsed()
    settings = {
        name: value for name, value in vars(asked).items() if name in Options.__annotations__
    }
    options = Options(**settings)
    shown = [what for what in WHAT if what in asked.what]
    print(f"{'loop':18}" + "".join(HEADS[what] for what in shown), flush=True)
    found: dict[str, dict[str, Any]] = {}
    for name in asked.names or LOOPS:
        found[name] = measure(name, options)
        print(f"{name:18}" + "".join(cells(what, found[name][what]) for what in shown), flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1) + "\n")
    for what in shown:
        print(summary(what, found), flush=True)


if __name__ == "__main__":
    main()
