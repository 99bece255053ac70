"""``fuse demo --ranks N``: the character GPT on several ranks, on the CPU and on the device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from fuse.ports import free_port

WRAPS = ("ddp", "fsdp2")
DEVICES = ("cpu", "tpu")
SECONDS = 900.0
"""The longest a run may take."""
PATIENCE = 60.0
"""How long torchrun has to end its ranks: it waits half a minute before it kills one."""


@dataclass(frozen=True)
class Trained:
    """What one run printed: the last loss, and the median time of a step in milliseconds."""

    loss: float
    milliseconds: float


def main(ranks: int, steps: int, rounds: int) -> int:
    """Run each program ``rounds`` times turn by turn, and print a table; the exit code."""
    print(f"character GPT on {ranks} ranks: {steps} steps, {rounds} times in turn")
    print(f"{'':8}{'CPU, gloo':>14}{'tpu':>14}{'speed':>8}   last loss, CPU and tpu")
    for wrap in WRAPS:
        runs: dict[str, list[Trained]] = {device: [] for device in DEVICES}
        for _ in range(rounds):
            for device in DEVICES:
                runs[device].append(_train(wrap, device, ranks, steps))
        print(_row(wrap, runs))
    return 0


def _row(wrap: str, runs: dict[str, list[Trained]]) -> str:
    cpu, tpu = ([run.milliseconds for run in runs[device]] for device in DEVICES)
    ratio = median(a / b for a, b in zip(cpu, tpu, strict=True))
    losses = ", ".join(f"{runs[device][-1].loss:.4f}" for device in DEVICES)
    return f"{wrap:8}{median(cpu):>11.2f} ms{median(tpu):>11.2f} ms{ratio:>7.2f}x   {losses}"


def _train(wrap: str, device: str, ranks: int, steps: int) -> Trained:
    arguments = ["--wrap", wrap, "--device", device, "--steps", str(steps), "--every", str(steps)]
    threads = max(1, (os.cpu_count() or 1) // ranks)
    done = launched(
        ranks,
        ["-m", "fuse.examples.chargpt_ranks", *arguments],
        SECONDS,
        {"OMP_NUM_THREADS": str(threads), **os.environ},
    )
    loss = re.search(r"loss ([0-9.]+)", done.stdout)
    milliseconds = re.search(r"of a step: ([0-9.]+)", done.stdout)
    # PyTorch's FSDP2 over gloo aborts in one of some ten runs when the interpreter ends, without
    # this package too: the CPU's figures have been printed by then.
    failed = done.returncode != 0 and device != "cpu"
    if failed or loss is None or milliseconds is None:
        raise RuntimeError(f"{wrap} on {device} failed:\n{done.stderr[-4000:]}")
    return Trained(float(loss[1]), float(milliseconds[1]))


def launched(
    ranks: int, program: list[str], seconds: float, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program by torchrun; raises ``subprocess.TimeoutExpired`` once nothing of it is left.

    What ends is torchrun, asked to: it ends its ranks, which it gives sessions of their own. Were
    it killed, as ``subprocess.run`` does, they would stay.
    """
    line = [*_launcher(ranks), *program]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return subprocess.CompletedProcess(line, process.returncode, output, errors)


def _launcher(ranks: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(ranks),
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        str(free_port()),
    ]
