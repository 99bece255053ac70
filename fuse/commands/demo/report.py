"""What the demo shows at its end: a table a program, and one plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fuse.commands.demo.measure import TITLES, Run
from fuse.commands.demo.programs import Program

COLUMNS = (
    "", "{score}", "ms", "uncompiled", "recorded", "chunks", "compiles",
    "compiled", "in seconds", "from disk",
)  # fmt: skip
NOTE = """\
ms: the median step of the second half; losses are read every ten steps. uncompiled, recorded: the
step's operations, in PyTorch's CPU kernels and in chunks. compiles: a step. compiled, in seconds,
from disk: executables over the whole run, evaluation included; all share one cache, so Strict finds
what Debug compiled. Fused, compiled: with FUSE_TIER=compiled; Fused compiles what is worth it."""


def table(program: Program, runs: Sequence[Run]) -> str:
    """One line a run under a heading; figures are aligned on the right."""
    head = [column.format(score=program.score) for column in COLUMNS]
    rows = [head, *([TITLES[run.runner], *_figures(program, run)] for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    rule = "-" * len(lines[0])
    title = f"{program.title}, {len(runs[0].losses)} steps"
    return "\n".join([title, rule, lines[0], rule, *lines[1:], rule, *_fallbacks(runs)])


def _figures(program: Program, run: Run) -> list[str]:
    figures = [program.score_format.format(run.score), f"{run.milliseconds:.1f}"]
    counts = run.counts
    if counts is None:
        return figures + ["-"] * (len(COLUMNS) - 1 - len(figures))
    return [
        *figures,
        f"{counts.uncompiled:.0f}",
        f"{counts.recorded:.0f}",
        f"{counts.chunks:.1f}".removesuffix(".0"),
        f"{counts.compiles:.2f}".removesuffix(".00"),
        str(counts.all_compiles),
        f"{counts.compile_seconds:.1f}",
        str(counts.loaded),
    ]


def _fallbacks(runs: Sequence[Run]) -> list[str]:
    lines = []
    for run in runs:
        if run.counts is not None and run.counts.host_fallbacks:
            calls = ", ".join(f"{n} x {name}" for name, n in run.counts.host_fallbacks.items())
            lines.append(f"{TITLES[run.runner]} ran on the host: {calls}")
    return lines


def plot(results: Sequence[tuple[Program, Sequence[Run]]], path: Path) -> None:
    """Loss curves (left) and median step times (right), a row a program, as a PNG at ``path``."""
    # Not pyplot: a library must leave its user's choice of an interactive backend alone.
    figure = Figure(figsize=(11, 3.8 * len(results)), layout="constrained")
    axes = figure.subplots(len(results), 2, squeeze=False, width_ratios=(2, 1))
    for (program, runs), (curves, bars) in zip(results, axes, strict=True):
        for run in runs:
            curves.plot(
                range(1, len(run.losses) + 1),
                _smoothed(run.losses),
                label=TITLES[run.runner],
                alpha=0.8,
            )
        curves.set(title=program.title, xlabel="step", ylabel="training loss (mean of 5)")
        curves.legend()
        times = [run.milliseconds for run in runs]
        drawn = bars.bar(
            [TITLES[run.runner] for run in runs], times, color=[f"C{i}" for i in range(len(runs))]
        )
        bars.bar_label(drawn, fmt="{:.1f}")
        bars.set(ylabel="ms a step (median)")
        bars.margins(y=0.12)
    FigureCanvasAgg(figure)  # draws with Agg, which needs no display
    figure.savefig(path)


def _smoothed(losses: Sequence[float], span: int = 5) -> list[float]:
    """Means of the last ``span`` losses, of fewer at the start."""
    windows = [losses[max(0, end - span) : end] for end in range(1, len(losses) + 1)]
    return [sum(window) / len(window) for window in windows]
