"""Signals and kills at random moments of a training program.

``python -m tests.fuzz.interruptions signals 300`` sends that many signals, each after the one
before has been handled: one whose handler does not run within ``LATEST`` seconds is lost. Losses
have to be those of a run that nobody disturbed. Every tenth is a SIGINT, which raises
``KeyboardInterrupt`` wherever the program is; it then begins again, in the same process.

``python -m tests.fuzz.interruptions kills 200`` kills that many processes, which share a cache, at
random moments of their start and training. Others, started in between, give the same losses.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import torch

ROOT = Path(__file__).parents[2]
LATEST = 60.0
STEPS = 40


class Training:
    """A small network with AdamW."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)
        ).to("tpu")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.x = torch.randn(8, 16).to("tpu")
        self.y = torch.randint(0, 4, (8,)).to("tpu")

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def losses(self) -> list[float]:
        """Those of ``STEPS`` steps."""
        return [self.step() for _ in range(STEPS)]


def disturbed() -> None:
    """Train until the parent closes stdin; answer each signal with its name, each round's losses.

    A round that an interrupt ended is begun again.
    """
    counted: list[str] = []

    def handle(number: int, _: Any) -> None:
        counted.append(signal.Signals(number).name)
        os.write(1, json.dumps({"signal": counted[-1]}).encode() + b"\n")

    def interrupt(number: int, frame: Any) -> None:
        handle(number, frame)
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, handle)
    signal.signal(signal.SIGUSR1, handle)
    signal.signal(signal.SIGINT, interrupt)
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            os.write(1, json.dumps({"losses": Training().losses()}).encode() + b"\n")
        except KeyboardInterrupt:
            continue


def start(name: str, cache: Path, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.interruptions", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,  # what has been written is all that select has to tell of
        cwd=ROOT,
        env={**os.environ, "FUSE_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1", **env},
    )


def answers(output: IO[bytes], wanted: str) -> tuple[Any, list[list[float]]]:
    """What the child says of ``wanted``, and the losses that it printed before."""
    losses: list[list[float]] = []
    while select.select([output], [], [], LATEST)[0]:
        said = json.loads(output.readline())
        if wanted in said:
            return said[wanted], losses
        losses.append(said["losses"])
    raise TimeoutError(f"no {wanted} within {LATEST} s")


def signals(number: int, seed: int = 0) -> str:
    """Send that many; a text with the figures. Raises where one is lost or a loss is another."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as cache:
        child = start("disturbed", Path(cache))
        assert child.stdin is not None and child.stdout is not None
        try:
            expected, _ = answers(child.stdout, "losses")
            rounds = 0
            for at in range(number):
                time.sleep(chance.uniform(0.0, 0.05))
                sent = (signal.SIGALRM, signal.SIGUSR1, signal.SIGINT)[at % 2 if at % 10 else 2]
                child.send_signal(sent)
                name, losses = answers(child.stdout, "signal")
                assert name == sent.name, (name, sent)
                assert all(one == expected for one in losses), losses
                rounds += len(losses)
            child.stdin.close()
            last, losses = answers(child.stdout, "losses")
            assert last == expected and all(one == expected for one in losses)
            assert child.wait(LATEST) == 0
        finally:
            child.kill()
    return f"{number} signals arrived; {rounds + 1} undisturbed rounds gave the same losses"


def once() -> None:
    print(json.dumps({"losses": Training().losses()}))


def kills(number: int, seed: int = 0) -> str:
    """Kill that many processes over one cache, which is checked after every tenth."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        began = time.monotonic()
        expected = json.loads(start("once", Path(folder) / "other").communicate(timeout=300)[0])
        whole = time.monotonic() - began
        finished = 0
        for at in range(number):
            child = start("once", cache / "cache")
            try:
                child.communicate(timeout=chance.uniform(0.3, 1.0) * whole)
                finished += 1
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
            if at % 10 == 9:
                found = start("once", cache / "cache")
                assert json.loads(found.communicate(timeout=300)[0]) == expected
                assert found.returncode == 0
    return f"{number - finished} processes killed, {finished} were sooner; the losses stay the same"


def main() -> None:
    """``signals N`` or ``kills N``; what they start is ``disturbed`` and ``once``."""
    name = sys.argv[1]
    if name in ("disturbed", "once"):
        {"disturbed": disturbed, "once": once}[name]()
    else:
        print({"signals": signals, "kills": kills}[name](int(sys.argv[2])))


if __name__ == "__main__":
    main()
