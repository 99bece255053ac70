"""A process that checks entries: reads their keys, a line each, and writes records, a line each.

What the checks print goes to the standard error; the records have the standard output to
themselves.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import sys
import time
import warnings
from collections.abc import Callable

import torch

import fuse
from fuse.device import lazy
from fuse.engine.targeted import Targeted
from tests.coverage import modules, operators, optimizers, samples, special, targets
from tests.coverage.record import FAILED, Outcome, Record, brief

DATABASES = {"op": operators, "module": modules, "optim": optimizers}


def keys() -> list[str]:
    """Every entry of every database, as ``database:entry``."""
    return [f"{name}:{entry}" for name, module in DATABASES.items() for entry in module.ENTRIES]


def check(key: str, quick: bool = False) -> Record:
    """Run every check of one entry, or the quick ones. A failure outside them fails the entry."""
    database, _, entry = key.partition(":")
    record = Record(database, entry)
    started = time.perf_counter()
    plain = key in special.WITHOUT_ONEDNN
    try:
        with torch.backends.mkldnn.flags(enabled=False) if plain else contextlib.nullcontext():
            for name, outcome in DATABASES[database].checks(entry, quick):
                record.checks[name] = outcome
    except Exception as error:  # noqa: BLE001  (kept as the entry's outcome)
        record.checks["run"] = Outcome(FAILED, reason=brief(error))
    record.seconds = round(time.perf_counter() - started, 2)
    return record


def compile_only(key: str, targeted: Targeted) -> Record:
    """Compile one entry for the target."""
    database, _, entry = key.partition(":")
    record = Record(database, entry)
    started = time.perf_counter()
    try:
        for name, outcome in targets.checks(key, targeted):
            record.checks[name] = outcome
    except Exception as error:  # noqa: BLE001  (kept as the entry's outcome)
        record.checks["run"] = Outcome(FAILED, reason=brief(error))
    record.seconds = round(time.perf_counter() - started, 2)
    return record


def main() -> int:
    """Serve until the standard input ends.

    The arguments: mode, backend, and perhaps ``quick`` and ``compiled``, or ``target`` and its
    name.
    """
    mode, backend, *how = sys.argv[1:]
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with os.fdopen(os.dup(1), "w", buffering=1) as records:
        os.dup2(2, 1)
        fuse.set_backend(backend)
        fuse.set_mode(mode)
        samples.compiled = "compiled" in how
        judge: Callable[[str], Record] = functools.partial(check, quick="quick" in how)
        if how[:1] == ["target"]:
            targeted = lazy.engine().open_target(how[1])
            lazy.set_target(targeted)
            judge = functools.partial(compile_only, targeted=targeted)
        print("ready", file=records)
        for line in sys.stdin:
            print(judge(line.strip()).to_line(), file=records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
