"""What the device adds to a start: ``python -m bench.imports``, processes turn by turn.

``import torch`` with the package against ``import torch`` with autoload off; the device's first
use, with all caches warm, against ``import jax`` and a computation by it. Seconds are a child's
own, from before the first import; Python's start is in none of them. One thread, medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

CONTENDERS = {
    "import torch, plain": (
        {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        "import torch",
    ),
    "import torch": ({}, "import torch"),
    "torch, import jax": (
        {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        "import torch; import jax",
    ),
    "torch, jax computes": (
        {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        "import torch; import jax; import numpy; numpy.asarray(jax.jit(lambda x: x + 1)(1.0))",
    ),
    "torch, tpu computes": ({}, "import torch; (torch.ones(2, device='tpu') + 1).tolist()"),
    "torch, tpu compiles": (
        {"FUSE_TIER": "compiled"},
        "import torch; (torch.ones(2, device='tpu') + 1).tolist()",
    ),
}
TIMED = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def seconds(name: str) -> float:
    """One start of a contender."""
    settings, code = CONTENDERS[name]
    command = [sys.executable, "-c", TIMED.format(code)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **settings}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Print each contender's median, and what the device adds."""
    parser = argparse.ArgumentParser(prog="python -m bench.imports", description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    turns = parser.parse_args().turns
    for name in CONTENDERS:
        seconds(name)  # fills the caches
    found = {name: list[float]() for name in CONTENDERS}
    for _ in range(turns):
        for name, times in found.items():
            times.append(seconds(name))
    median = {name: statistics.median(times) for name, times in found.items()}
    for name, one in median.items():
        print(f"{name:22}{1000 * one:8.0f} ms")
    for what, one, other in (
        ("import torch adds", "import torch", "import torch, plain"),
        ("first use adds to import jax", "torch, tpu computes", "torch, import jax"),
        ("compiled, to jax computing", "torch, tpu compiles", "torch, jax computes"),
    ):
        added = statistics.median(
            here - there for here, there in zip(found[one], found[other], strict=True)
        )
        print(f"{what:30}{1000 * added:8.0f} ms")


if __name__ == "__main__":
    main()
