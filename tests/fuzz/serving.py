"""An inference server of threads, asked for random shapes: ``python -m tests.fuzz.serving 5000``.

Every thread calls one shared model directly, with a batch and a length that are drawn for each
request. Each answer is compared with the CPU's, and what the process holds is looked at: the
executables that were compiled, and resident memory.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import fuse

VOCABULARY, WIDTH, CLASSES = 64, 32, 5
LONGEST, LARGEST = 48, 6


class Classifier(nn.Module):
    """Reads rows of characters, of any number and length; one row of scores each."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, characters: Tensor) -> Tensor:
        scores: Tensor = self.head(self.layer(self.embedding(characters)).mean(1))
        return scores


@dataclass(frozen=True)
class Figures:
    """What a run showed.

    Attributes:
        requests: how many were answered, each as by the CPU.
        shapes: different ones among them.
        compiles: executables that were compiled for them.
        known_calls: what the recorder remembers in the end.
        megabytes: resident memory after a fifth of the requests, and in the end.
        seconds: from the first request to the last answer.
    """

    requests: int
    shapes: int
    compiles: int
    known_calls: int
    megabytes: tuple[int, int]
    seconds: float


def asked(number: int, seed: int) -> list[Tensor]:
    """Requests: int64, of 1 to ``LARGEST`` rows and 1 to ``LONGEST`` characters."""
    draw = random.Random(seed)
    return [
        torch.tensor([[draw.randrange(VOCABULARY) for _ in range(length)] for _ in range(rows)])
        for rows, length in (
            (draw.randint(1, LARGEST), draw.randint(1, LONGEST)) for _ in range(number)
        )
    ]


def serve(number: int, threads: int = 8, seed: int = 0) -> Figures:
    """Answer that many requests; raises ``AssertionError`` where an answer is not the CPU's."""
    torch.manual_seed(seed)
    model = Classifier().eval()
    requests = asked(number, seed)
    with torch.no_grad():
        expected = [model(request) for request in requests]
    model = model.to("tpu")
    compiles, sizes = int(fuse.stats()["compiles"]), [0, 0]
    done, lock = [0], threading.Lock()

    def answer(at: int) -> None:
        with torch.no_grad():
            found = model(requests[at].to("tpu")).cpu()
        torch.testing.assert_close(found, expected[at], rtol=1e-4, atol=1e-5)
        with lock:
            done[0] += 1
            if done[0] == number // 5:
                sizes[0] = resident()

    began = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        for one in [pool.submit(answer, at) for at in range(number)]:
            one.result()
    seconds = time.monotonic() - began
    sizes[1] = resident()
    stats = fuse.stats()
    return Figures(
        number,
        len({request.shape for request in requests}),
        int(stats["compiles"]) - compiles,
        int(stats["known_calls"]),
        (sizes[0], sizes[1]),
        seconds,
    )


def resident() -> int:
    """Megabytes of memory that the process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def main() -> None:
    """``N [THREADS]``; prints the figures."""
    os.environ.setdefault("FUSE_HOST_FALLBACK", "error")
    print(json.dumps(asdict(serve(*map(int, sys.argv[1:])))))


if __name__ == "__main__":
    main()
