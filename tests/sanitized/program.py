"""What runs on a core that was built with sanitizers: threads and streams that share tensors.

Not a test of pytest's: its process has the sanitizer's runtime from the start on.
"""

from __future__ import annotations

import os
import random
import sys
import threading

import torch

import fuse

THREADS, ROUNDS, SIZES = 4, 40, (2, 3, 5)
PINNED = 1 << 17  # elements: enough for the device to copy them on a thread of its own


def work(number: int, weights: torch.Tensor, host: torch.Tensor, side: torch.Stream) -> None:
    """Compute with weights that others read as well, now and then on a stream that others use."""
    generator = random.Random(number)
    for _ in range(ROUNDS):
        rows, scale = generator.choice(SIZES), generator.choice((0.25, 0.5))
        x = torch.full((rows, 4), number / 8)
        y = x.to("tpu")
        for _ in range(generator.choice((1, 3))):
            x, y = torch.tanh(x @ host * scale), torch.tanh(y @ weights * scale)
        x[0].mul_(2)
        y[0].mul_(2)
        leaf = y.detach().requires_grad_()
        with torch.tpu.stream(side):  # type: ignore[attr-defined]
            doubled = leaf * 2
        doubled.sum().backward()
        torch.testing.assert_close(doubled.detach().cpu(), x * 2, rtol=1e-4, atol=1e-5)
        assert leaf.grad is not None and leaf.grad.sum().item() == rows * 8
        bring(number, side)


def bring(number: int, side: torch.Stream) -> None:
    """Send pinned memory on a stream that others use too, and write there once it has come."""
    source = torch.full((PINNED,), float(number)).pin_memory()
    with torch.tpu.stream(side):  # type: ignore[attr-defined]
        came = source.to("tpu", non_blocking=True)
    side.synchronize()
    source.zero_()
    assert came.amin().item() == number


def main() -> None:
    """Run every thread to its end; the exit code is 1 if one failed."""
    host = torch.full((4, 4), 0.5)
    weights = host.to("tpu") * 1
    side = torch.tpu.Stream()  # type: ignore[attr-defined]
    failed: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number, weights, host, side)
        except BaseException as error:  # noqa: BLE001  (said below)
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.tpu.synchronize()  # type: ignore[attr-defined]
    print(failed or "right", fuse.stats()["cuts"], flush=True)
    sys.stderr.flush()
    if failed:
        os._exit(1)


if __name__ == "__main__":
    main()
