"""One process: some tests of one of a suite's files, one after another, on one device.

    python -m tests.upstream.worker SUITE FOLDER FILE DEVICE COUNT SEED RESULTS [CPU_RESULTS]

It appends a line of JSON to RESULTS as a test begins and as it ends, so that whoever started it
knows which one the process ended or stayed in. What has ended is not run again, nor what
CPU_RESULTS does not say passed there.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import warnings
from collections.abc import Collection
from pathlib import Path

import torch

from tests.upstream.record import SKIPPED, Log, passed
from tests.upstream.sample import sample
from tests.upstream.suite import suite


def main(
    name: str,
    folder: str,
    file: str,
    device: str,
    count: str,
    seed: str,
    results: str,
    on_cpu: str = "",
) -> None:
    """Run what is left of the sample."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    warnings.simplefilter("default")
    sys.argv[1:] = []  # a file's own arguments: PyTorch reads them
    of, log = suite(name), Log(Path(results))

    def choose(names: Collection[str]) -> list[str]:
        log.planned(len(names))
        chosen = sample(names, int(count), int(seed))
        if on_cpu:
            right = passed(Path(on_cpu), (SKIPPED,) if of.accelerators else ())
            chosen = [one for one in chosen if one in right]
        ended = log.outcomes()
        return [one for one in chosen if one not in ended]

    if device != "cpu":
        torch.tpu.init()  # which may build the core
    of.run(Path(folder), file, device, log, choose)
    log.finished()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a failed test leaves threads that wait


if __name__ == "__main__":
    main(*sys.argv[1:])
