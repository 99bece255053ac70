"""The ``fuse demo`` command."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from fuse.commands.demo import ranks
from fuse.commands.demo.measure import RUNNERS, TITLES, Run, measure
from fuse.commands.demo.programs import PROGRAMS, Program
from fuse.commands.demo.report import NOTE, plot, table
from fuse.examples import digits

DIGITS_STEPS = 5 * (digits.TRAINING_IMAGES // digits.BATCH)
CHARGPT_STEPS = 250
PLOT = "fuse-demo.png"


def main(arguments: Sequence[str]) -> int:
    """Train, print a table a program, write the plot; the command's exit code."""
    options = _parser().parse_args(arguments)
    if options.ranks is not None:
        return ranks.main(options.ranks, options.chargpt_steps, options.rounds)
    wanted = [program for program in PROGRAMS if options.program in ("both", program.name)]
    steps = {"digits": options.digits_steps, "chargpt": options.chargpt_steps}
    options.output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    results = [
        (program, _runs(program, options.runners, steps[program.name])) for program in wanted
    ]
    for program, runs in results:
        print(f"\n{table(program, runs)}")
    print(f"\n{NOTE}")
    path = options.output / PLOT
    plot(results, path)
    print(f"\n{time.perf_counter() - started:.0f} seconds in all; plot: {path.resolve()}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fuse demo", description="Train two programs on the CPU and in every mode."
    )
    parser.add_argument("--program", choices=["both", *(p.name for p in PROGRAMS)], default="both")
    parser.add_argument(
        "--runners",
        type=_runner_list,
        default=RUNNERS,
        metavar="LIST",
        help=f"comma-separated, of {', '.join(RUNNERS)} (default: all)",
    )
    positive = _positive
    parser.add_argument("--digits-steps", type=positive, default=DIGITS_STEPS, metavar="N")
    parser.add_argument("--chargpt-steps", type=positive, default=CHARGPT_STEPS, metavar="N")
    parser.add_argument(
        "--ranks",
        type=positive,
        metavar="N",
        help="train the second on so many processes instead, under DDP and FSDP2",
    )
    parser.add_argument("--rounds", type=positive, default=1, metavar="N", help="with --ranks")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), help="the plot's folder"
    )
    return parser


def _runner_list(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in RUNNERS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{', '.join(map(repr, unknown))}: the valid ones are {', '.join(RUNNERS)}"
        )
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _runs(program: Program, runners: Sequence[str], steps: int) -> list[Run]:
    print(f"{program.title}: {steps} steps each")
    return [_with_bar(program, runner, steps) for runner in runners]


def _with_bar(program: Program, runner: str, steps: int) -> Run:
    with tqdm(total=steps, desc=f"  {TITLES[runner]:15}", unit="step") as bar:
        return measure(program, runner, steps, _advance(bar))


def _advance(bar: tqdm[None]) -> Callable[[float], None]:
    def advance(loss: float) -> None:
        bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        bar.update()

    return advance
