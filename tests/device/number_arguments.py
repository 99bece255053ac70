"""The numbers that calls of PyTorch's operator database carry, and what becomes of each moved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

from fuse.commands.coverage.samples import Samples
from fuse.commands.coverage.transfer import Transfer
from tests.device.helpers import made

VALUES = 4
"""Values that an argument gets: the sample's own, a second, and those that compile nothing."""
FLOATS = (0.5, 0.75, 1.25, 0.3, 2.5, 0.9, 0.1)
INTEGERS = (1, 2, 3, -1, 4, 5, -2, 6)
SAMPLES = 2
DTYPES = (torch.float32, torch.int64)


@dataclass(frozen=True)
class Moved:
    """One number among a sample's arguments, and the samples in which it alone is another."""

    argument: str
    samples: tuple[tuple[Any, ...], ...]
    results: tuple[Any, ...]


def call(function: Callable[..., Any], sample: tuple[Any, ...], device: str) -> Any:
    """What ``function`` gives for a copy of a sample on ``device``, as tensors on the CPU."""
    value, args, kwargs = Transfer(device)(sample)
    torch.manual_seed(0)
    with torch.no_grad():
        result = function(value, *args, **kwargs)
    return [leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in _leaves(result)]


def moved_numbers(info: Any, function: Callable[..., Any]) -> Iterator[Moved]:
    """Every number of an entry's samples that may be another without changing the results' form."""
    seen: set[str] = set()
    supported = info.supported_dtypes("cpu")
    for dtype in [dtype for dtype in DTYPES if dtype in supported]:
        for sample in Samples(info).plain(dtype, SAMPLES):
            nest = (sample.input, sample.args, sample.kwargs)
            for argument, at in _numbers(nest):
                if argument not in seen:
                    moved = _moved(function, nest, argument, at)
                    if moved is not None:
                        seen.add(argument)
                        yield moved


def _leaves(nest: Any) -> list[Any]:
    return list(tree_flatten(nest)[0])


def _numbers(nest: tuple[Any, ...]) -> Iterator[tuple[str, int]]:
    """Names and places of numbers: the input's, a position's or a keyword's."""
    for at, (path, leaf) in enumerate(tree_flatten_with_path(nest)[0]):
        if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
            yield keystr(path[1:]) or "input", at


def _moved(
    function: Callable[..., Any], nest: tuple[Any, ...], argument: str, at: int
) -> Moved | None:
    leaves, form = tree_flatten(nest)
    own = leaves[at]
    # An integral float may be special (no dropout, a whole power): it is no value of a schedule.
    first = [] if isinstance(own, float) and (own.is_integer() or not isfinite(own)) else [own]
    others = FLOATS if isinstance(own, float) else INTEGERS
    candidates = [*first, *(value for value in others if value != own)]
    samples: list[tuple[Any, ...]] = []
    results: list[Any] = []
    for number in candidates:
        changed = tree_unflatten([*leaves[:at], number, *leaves[at + 1 :]], form)
        try:
            with warnings.catch_warnings(action="ignore"):
                found = call(function, changed, "cpu")
        except Exception:  # noqa: BLE001  (an error of any kind: no value of the argument)
            continue
        if results and _form(found) != _form(results[0]):
            continue
        samples.append(changed)
        results.append(found)
        if len(samples) == VALUES:
            return Moved(argument, tuple(samples), tuple(results))
    return None


def _form(result: list[Any]) -> list[Any]:
    """All of a result but its values."""
    return [
        (leaf.shape, leaf.dtype, leaf.stride()) if isinstance(leaf, torch.Tensor) else type(leaf)
        for leaf in result
    ]


def compiles_late(function: Callable[..., Any], moved: Moved) -> tuple[int, list[Any]]:
    """Executables made for the third value and those after it, and the results of all."""
    found = [call(function, sample, "tpu") for sample in moved.samples[:2]]
    before = made()
    found += [call(function, sample, "tpu") for sample in moved.samples[2:]]
    return made() - before, found
