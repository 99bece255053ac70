"""Which operators take longer on the device, uncompiled, than on PyTorch's CPU.

    OMP_NUM_THREADS=1 python -m bench.operators            # forward
    OMP_NUM_THREADS=1 python -m bench.operators --gradients conv softmax

Each entry of PyTorch's operator database, at its largest sample of up to 4,000 numbers, behind an
addition in place so that its segment has begun; the least of eight turns, CPU and device one after
the other in one process. Prints those whose ratio is above ``--above``, the slowest first, and the
median of all: what stands out is composed where PyTorch's kernel could be called.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

TURNS = 8
MOST_NUMBERS = 4_000
TURN_MICROSECONDS = 2_000.0


class Found(NamedTuple):
    """One operator: microseconds a call on the CPU and on the device."""

    name: str
    cpu: float
    device: float

    @property
    def ratio(self) -> float:
        """How many times as long the device takes."""
        return self.device / self.cpu


def sample(entry: Any, gradients: bool) -> tuple[Any, ...] | None:
    """Arguments on the CPU, positional and by name; ``None`` where no sample is of such a size."""
    dtype = torch.float32 if torch.float32 in entry.supported_dtypes("cpu") else torch.int64
    best: tuple[int, Any] = (3, None)
    for one in entry.sample_inputs("cpu", dtype, requires_grad=gradients):
        leaves = tree_leaves((one.input, one.args, one.kwargs))
        numbers = sum(x.numel() for x in leaves if isinstance(x, torch.Tensor))
        if best[0] < numbers <= MOST_NUMBERS:
            best = (numbers, ((one.input, *one.args), one.kwargs))
    return best[1]


def on(device: str, arguments: Any) -> Any:
    """The same arguments as leaves on a device."""

    def moved(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().to(device).requires_grad_(leaf.requires_grad)

    return tree_map(moved, arguments)


def call(entry: Any, arguments: Any, gradients: bool) -> Callable[[], object]:
    """The operator with these arguments; with the gradients of its first result if asked."""
    args, kwargs = arguments
    if not gradients:
        return lambda: entry.op(*args, **kwargs)
    inputs = [x for x in tree_leaves(arguments) if isinstance(x, torch.Tensor) and x.requires_grad]

    def with_gradients() -> object:
        results = tree_leaves(entry.op(*args, **kwargs))
        first = next(x for x in results if isinstance(x, torch.Tensor) and x.requires_grad)
        return torch.autograd.grad(first, inputs, torch.ones_like(first), allow_unused=True)

    return with_gradients


def microseconds(function: Callable[[], object], begun: torch.Tensor, times: int) -> float:
    """A call's, of as many; ``begun`` is written before each, and its own time is in it."""
    start = time.perf_counter()
    for _ in range(times):
        begun.add_(0)
        function()
    return (time.perf_counter() - start) / times * 1e6


def measured(entry: Any, gradients: bool) -> Found | None:
    """Both devices' least turn; ``None`` for what has no sample."""
    arguments = sample(entry, gradients)
    if arguments is None or (gradients and not entry.supports_autograd):
        return None
    pairs = [
        (call(entry, on(device, arguments), gradients), torch.ones(3, device=device))
        for device in ("cpu", "tpu")
    ]
    with torch.set_grad_enabled(gradients):
        for function, _ in pairs:
            function()
        once = microseconds(*pairs[0], times=3)
        times = max(1, min(50, int(TURN_MICROSECONDS / max(once, 1.0))))
        turns = [[microseconds(*pair, times) for pair in pairs] for _ in range(TURNS)]
    name = ".".join(filter(None, (entry.name, entry.variant_test_name)))
    return Found(name, *map(min, zip(*turns, strict=True)))


def all_measured(names: list[str], gradients: bool) -> Iterator[Found]:
    """Entries whose name holds one of ``names``, all without any; says which raise."""
    for entry in op_db:
        if names and not any(name in entry.name for name in names):
            continue
        try:
            found = measured(entry, gradients)
        except Exception as error:  # noqa: BLE001  (a sample may ask for what a device has not)
            print(f"{entry.name}: {str(error).splitlines()[0] if str(error) else error!r}")
            continue
        if found is not None:
            yield found


def main() -> None:
    """Measure, print the slow ones and the median ratio."""
    parser = argparse.ArgumentParser(prog="python -m bench.operators", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of operators' names (default: all)")
    parser.add_argument("--gradients", action="store_true", help="forward and backward")
    parser.add_argument("--above", type=float, default=1.5, help="the ratio from which on it shows")
    options = parser.parse_args()
    os.environ["FUSE_TIER"] = "uncompiled"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = sorted(all_measured(options.names, options.gradients), key=lambda one: -one.ratio)
    for one in found:
        if one.ratio >= options.above or options.names:
            print(f"{one.ratio:6.2f} {one.cpu:9.1f} {one.device:9.1f} us  {one.name}")
    if found:
        median = statistics.median(one.ratio for one in found)
        print(f"{len(found)} operators, median {median:.2f}")


if __name__ == "__main__":
    main()
