"""The ``fuse coverage`` command."""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from fuse import config
from fuse.errors import ConfigError
from tests.coverage import quick, special
from tests.coverage.expected import verdict
from tests.coverage.record import Record, end_torn_line, load
from tests.coverage.report import DOCUMENT, write
from tests.coverage.runner import run
from tests.coverage.target_report import file_of, merge, targets_in

FOLDER = Path("build/coverage")


def main(arguments: Sequence[str]) -> int:
    """Run entries, print what is wrong, write the report; 1 where something is wrong."""
    options = _parser().parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    every = quick.ENTRIES if options.quick else _keys()
    wanted = [key for key in every if special.excluded(key) is None and _chosen(key, options.op)]
    if options.op and not wanted:
        print(f"no entry matches {', '.join(options.op)}", file=sys.stderr)
        return 2
    if options.target:
        found = [text for name in options.target for text in _run_target(wanted, name, options)]
        if options.document.exists():
            merge(options.document, targets_in(options.folder))
            print(f"wrote {options.document}")
        return _said(found)
    problems: list[str] = []
    for backend in options.backend:
        for mode in options.mode:
            problems += _run_one(_of_backend(wanted, backend, options), mode, backend, options)
    return _ended(problems, every, options)


def _ended(problems: list[str], every: Sequence[str], options: argparse.Namespace) -> int:
    """Write the report, print what is wrong; 1 where something is."""
    if not (options.op or options.quick or options.compiled):
        write(options.folder, every, options.document)
        merge(options.document, targets_in(options.folder))
        print(f"wrote {options.document}")
    return _said(problems)


def _said(problems: list[str]) -> int:
    """Print what is wrong; 1 where something is."""
    for problem in problems:
        print(problem)
    print(f"{len(problems)} checks are not as expected")
    return 1 if problems else 0


def _run_target(wanted: Sequence[str], target: str, options: argparse.Namespace) -> list[str]:
    """Compile every entry for a target: the texts of those that its compiler refuses."""
    path = options.folder / file_of(target)
    known = _run(wanted, path, target, ("fused", "xla", "target", target), options)
    records = [known[key] for key in wanted if key in known]
    refused = [one for one in records if any(not o.agrees for o in one.checks.values())]
    print(f"{target}: {len(records) - len(refused)} of {len(records)} entries compile")
    return [
        f"{target} {record.key} {name}: {outcome.reason}"
        for record in refused
        for name, outcome in record.checks.items()
        if not outcome.agrees
    ]


def _run_one(
    wanted: Sequence[str], mode: str, backend: str, options: argparse.Namespace
) -> list[str]:
    how = [name for name in ("quick", "compiled") if getattr(options, name)]
    path = options.folder / "-".join([*how, backend, f"{mode}.jsonl"])
    known = _run(wanted, path, ", ".join([backend, mode, *how]), (mode, backend, *how), options)
    return [
        f"{backend} {mode} {text}"
        for text in verdict(
            [known[key] for key in wanted if key in known], mode, backend, options.quick
        )
    ]


def _run(
    wanted: Sequence[str],
    path: Path,
    what: str,
    arguments: Sequence[str],
    options: argparse.Namespace,
) -> dict[str, Record]:
    """Run what ``path`` has no record of yet; every record. ``arguments`` are a worker's."""
    if options.quick and not options.target or options.fresh and not options.op:
        path.unlink(missing_ok=True)
    known = load(path)
    end_torn_line(path)
    todo = [key for key in wanted if options.op or key not in known]
    if options.again:
        todo += [key for key in wanted if key in known and not known[key].native]
    started = time.perf_counter()
    with path.open("a", buffering=1) as lines:

        def took(record: Record) -> None:
            lines.write(record.to_line() + "\n")
            known[record.key] = record
            bad = [f"{n}: {o.reason}" for n, o in record.checks.items() if not o.agrees]
            host = sorted({name for o in record.checks.values() for name in o.fallbacks})
            if options.verbose or bad:
                text = "; ".join(bad) or (f"host: {', '.join(host)}" if host else "native")
                print(f"{record.seconds:6.1f} s  {record.key}  {text}", flush=True)

        run(todo, arguments, options.folder, options.jobs, options.timeout, took)
    print(
        f"{what}: {len(todo)} entries in {time.perf_counter() - started:.0f} s, "
        f"{len(wanted) - len(todo)} known from {path}"
    )
    return known


def _of_backend(wanted: Sequence[str], backend: str, options: argparse.Namespace) -> list[str]:
    """What runs on one backend: everything, or its part of the quick entries."""
    if options.compiled:
        wanted = [key for key in wanted if key.startswith("op:")]
    part = quick.NUMPY if backend == "numpy" else quick.ENTRIES
    return [key for key in wanted if not options.quick or key in part]


def _keys() -> Sequence[str]:
    """Every key, from a process of its own: the databases import much that stays behind."""
    code = "from tests.coverage.worker import keys; print('\\n'.join(keys()))"
    listed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    return listed.stdout.split()


def _chosen(key: str, patterns: Sequence[str]) -> bool:
    name = key.partition(":")[2]
    return not patterns or any(
        fnmatchcase(name, pattern) or fnmatchcase(key, pattern) for pattern in patterns
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fuse coverage",
        description="Compare the device with PyTorch's CPU over PyTorch's own databases.",
    )
    every = {"mode": config.MODES, "backend": config.BACKENDS}
    for name, default in (("mode", config.mode()), ("backend", config.backend())):
        parser.add_argument(
            f"--{name}",
            type=functools.partial(_list, what=name, valid=every[name]),
            default=[default],
            metavar="LIST",
            help=f"comma-separated, of {', '.join(every[name])}, or all (default {default})",
        )
    parser.add_argument(
        "--target",
        type=lambda text: text.split(","),
        default=[],
        metavar="LIST",
        help="compile only, for these TPUs and GPUs, such as v5e,h100: see docs/targets.md",
    )
    parser.add_argument(
        "--op",
        action="append",
        default=[],
        metavar="NAME",
        help="only this entry (a pattern; perhaps op:NAME, module:NAME, optim:NAME); always runs",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--timeout", type=float, default=240.0, metavar="SECONDS")
    parser.add_argument("--folder", type=Path, default=FOLDER, metavar="PATH")
    parser.add_argument("--document", type=Path, default=DOCUMENT, metavar="PATH")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run found")
    parser.add_argument(
        "--again", action="store_true", help="run what failed or used the host once more"
    )
    parser.add_argument(
        "--quick", action="store_true", help="the fixed part that 'make test' runs; no report"
    )
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="operators through torch.compile (no modules, optimizers, errors); no report",
    )
    parser.add_argument("--verbose", action="store_true", help="a line for every entry")
    return parser


def _list(text: str, what: str, valid: Sequence[str]) -> list[str]:
    chosen = list(valid) if text == "all" else text.split(",")
    try:
        return [config.choice(what, item, tuple(valid)) for item in chosen]
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
