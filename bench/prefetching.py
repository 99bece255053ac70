"""A loader that copies the next batch on a side stream, against one that copies when asked.

    python -m bench.prefetching --steps 40 --megabytes 64

Three ways of feeding one training loop, turn by turn in one process: ``resident`` has its batches
on the device, ``in turn`` copies each before its step, ``prefetching`` sends the next one from
pinned memory with ``non_blocking=True`` on a stream of its own before it waits for the loss.
Printed are the medians of a step, and which part of the copies' time prefetching hides. XLA's CPU
platform gets one core (``NPROC``), so that a copy finds another, as it does beside a TPU. The
losses have to be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

WIDTH, POOLED = 4096, 64
DEVICE = torch.device("tpu")
Feed = Callable[[list[Tensor]], Iterator[Tensor]]


def resident(batches: list[Tensor]) -> Iterator[Tensor]:
    """Batches that were copied before the first step."""
    copies = [batch.to(DEVICE) for batch in batches]
    torch.tpu.synchronize()
    yield from copies


def in_turn(batches: list[Tensor]) -> Iterator[Tensor]:
    """Each batch copied when it is asked for."""
    for batch in batches:
        yield batch.to(DEVICE)


def prefetching(batches: list[Tensor]) -> Iterator[Tensor]:
    """The next batch is on its way while the step of this one runs."""
    side = torch.tpu.Stream()

    def send(batch: Tensor) -> Tensor:
        with torch.tpu.stream(side):
            return batch.to(DEVICE, non_blocking=True)

    coming = send(batches[0])
    for following in [*batches[1:], None]:
        torch.tpu.current_stream().wait_stream(side)
        here = coming
        if following is not None:
            coming = send(following)
        yield here


FEEDS: dict[str, Feed] = {"resident": resident, "in turn": in_turn, "prefetching": prefetching}


class Loop:
    """A network of pooled rows, trained with SGD; always the same one from the beginning.

    It does little with much data, so that copies take a good part of the time.
    """

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = nn.Linear(POOLED, 64), nn.Tanh(), nn.Linear(64, 1)
        self.model = nn.Sequential(*layers).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, batch: Tensor) -> float:
        """One step; reads its loss."""
        self.optimizer.zero_grad()
        loss = self.model(batch.unflatten(1, (POOLED, -1)).tanh().mean(2)).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def run(feed: Feed, batches: list[Tensor]) -> tuple[list[float], float]:
    """The losses, and the median of a step's seconds with the wait for its batch."""
    loop, losses, seconds = Loop(), [], []
    fed = feed(batches)
    while True:
        began = time.perf_counter()
        batch = next(fed, None)
        if batch is None:
            return losses, statistics.median(seconds[len(seconds) // 3 :])
        losses.append(loop.step(batch))
        seconds.append(time.perf_counter() - began)


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64)
    given = parser.parse_args()
    os.environ.setdefault("NPROC", "1")
    os.environ.setdefault("FUSE_TIER", "compiled")  # at first sight last digits differ
    torch.tpu.init()  # memory is pinned once the device has started
    rows = (given.megabytes << 20) // (4 * WIDTH)
    sources = [torch.randn(rows, WIDTH).pin_memory() for _ in range(2)]
    batches = [sources[at % 2] for at in range(given.steps)]
    times: dict[str, list[float]] = {name: [] for name in FEEDS}
    expected = run(resident, batches)[0]  # compiles
    for _ in range(given.turns):
        for name, feed in FEEDS.items():
            losses, seconds = run(feed, batches)
            assert losses == expected, f"{name}: other losses"
            times[name].append(seconds)
    medians = {name: statistics.median(of) for name, of in times.items()}
    copying = medians["in turn"] - medians["resident"]
    hidden = (medians["in turn"] - medians["prefetching"]) / copying
    print(json.dumps({"seconds": medians, "copies hidden": round(hidden, 2)}))


if __name__ == "__main__":
    main()
