"""Collects the results of a run; at its end prints one table and writes JSON and a plot."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the choice of backend)

from bench.contender import rival_device  # noqa: E402

# Steady steps are compared, also in the processes that it starts.
os.environ.setdefault("FUSE_TIER", "compiled")
RESULTS: dict[str, Any] = {}
FOLDER = Path(__file__).parent


@pytest.fixture
def results() -> Iterator[dict[str, Any]]:
    """Where a benchmark puts what it measured, by program."""
    yield RESULTS


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write ``results.json`` and ``results.png``; what was not measured keeps its numbers.

    Those of a GPU have files of their own, ``results-cuda.json``.
    """
    path = FOLDER / f"{_stem()}.json"
    if RESULTS:
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | RESULTS, indent=1) + "\n")
        _plot(_programs())


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of ratios."""
    programs = _programs()
    write = terminalreporter.write_line
    if programs:
        write("")
        write(f"{'':14s}{'default':>10s}   times as fast as")
        write(f"{'program':14s}{'ms':>10s}" + "".join(f"{name:>15s}" for name in RIVALS))
        for name, seconds in programs.items():
            ratios = [_ratio(seconds, rival) for rival in RIVALS]
            write(
                f"{name:14s}{seconds[SUBJECT] * 1e3:10.2f}"
                + "".join(f"{'-' if r is None else f'{r:.2f}':>15s}" for r in ratios)
            )
        means = [_mean([_ratio(s, rival) for s in programs.values()]) for rival in RIVALS]
        write(f"{'geometric mean':24s}" + "".join(f"{mean:15.2f}" for mean in means))
    for name, result in RESULTS.items():
        if "microseconds" in result:
            pair = ", ".join(f"{k} {v:.2f} us" for k, v in result["microseconds"].items())
            write(f"{name}: {pair} an operation")


SUBJECT = "default"
OTHERS = (f"{rival_device()} eager", "torch.compile", "jax.jit")
RIVALS = (*OTHERS, "fused", "uncompiled", "compiled", "strict")
"""PyTorch's and JAX's, and the device with a setting or changed code: all compiled, uncompiled, by
``torch.compile``, and call by call."""


def _programs() -> dict[str, dict[str, float]]:
    """Seconds a step of each contender, by program."""
    return {name: r["seconds"] for name, r in RESULTS.items() if "seconds" in r}


def _ratio(seconds: dict[str, float], rival: str) -> float | None:
    return seconds[rival] / seconds[SUBJECT] if rival in seconds else None


def _mean(ratios: list[float | None]) -> float:
    known = [math.log(ratio) for ratio in ratios if ratio is not None]
    return math.exp(sum(known) / len(known)) if known else float("nan")


def _plot(programs: dict[str, dict[str, float]]) -> None:
    if not programs:
        return
    figure, axes = pyplot.subplots(figsize=(10, 4))
    width = 0.8 / len(OTHERS)
    for number, rival in enumerate(OTHERS):
        heights = [_ratio(seconds, rival) or 0 for seconds in programs.values()]
        places = [index + number * width for index in range(len(programs))]
        axes.bar(places, heights, width, label=rival)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks([index + 0.3 for index in range(len(programs))], list(programs), rotation=20)
    axes.set_ylabel("The device is this many times as fast")
    axes.legend()
    figure.tight_layout()
    figure.savefig(FOLDER / f"{_stem()}.png", dpi=110)


def _stem() -> str:
    return "results" if rival_device() == "cpu" else f"results-{rival_device()}"
