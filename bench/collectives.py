"""all_reduce on the device and on CPU tensors with gloo, turn by turn in one run.

    torchrun --nproc-per-node 2 -m bench.collectives

Rank 0 prints the medians, in microseconds: the first table under "Measured" in
docs/distributed.md.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

SIZES = {8: 200, 16_384: 200, 1_048_576: 30}
"""Elements of float32, and calls in a turn."""
TURNS = 7
DEVICES = ("tpu", "cpu")


def turn(device: str, elements: int, calls: int) -> float:
    """The median of some calls, each waited for."""
    tensor = torch.ones(elements, device=device)
    seconds = []
    for _ in range(calls):
        started = time.perf_counter()
        dist.all_reduce(tensor)
        if device == "tpu":
            torch.tpu.synchronize()
        seconds.append(time.perf_counter() - started)
    return 1e6 * statistics.median(seconds)


def main() -> None:
    """Measure, and print on rank 0."""
    dist.init_process_group("cpu:gloo,tpu:tpu_dist")
    for elements, calls in SIZES.items():
        for device in DEVICES:
            turn(device, elements, 20)  # what is compiled is compiled here
        found: dict[str, list[float]] = {device: [] for device in DEVICES}
        for _ in range(TURNS):
            for device in DEVICES:
                found[device].append(turn(device, elements, calls))
        if dist.get_rank() == 0:
            texts = [
                f"{statistics.median(of):,.0f} ({min(of):,.0f} to {max(of):,.0f})"
                for of in found.values()
            ]
            print(f"| {elements:,} elements | " + " | ".join(texts) + " |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
