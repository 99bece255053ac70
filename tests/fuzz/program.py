"""A random program as data, and what running it shows."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.fuzz.steps import (
    BITS,
    GRADIENTS,
    MATHS,
    READS,
    SMOOTH,
    STORAGES,
    VIEWS,
    WRITES,
)
from tests.programs.harness import on_host

MOST = 4096
"""Elements beyond which a tensor is not kept: programs are to stay small."""

OTHERS: dict[str, Any] = {**MATHS, **SMOOTH, **BITS, **WRITES, **STORAGES, **READS, **GRADIENTS}
WRITERS = WRITES.keys() | STORAGES.keys() | BITS.keys()
MAKERS = VIEWS.keys() | MATHS.keys() | SMOOTH.keys() | BITS.keys()


@dataclass(frozen=True)
class Step:
    """What is done, to which earlier tensors, with which number, and where.

    ``varies``: the number is another one in every run. ``thread``: in a thread of its own.
    """

    kind: str
    first: int
    second: int
    number: int
    varies: bool
    thread: bool


@dataclass(frozen=True)
class Program:
    """Steps, and whether the sizes that they begin with are others in every third run."""

    steps: tuple[Step, ...]
    grows: bool
    smooth: bool


@dataclass(frozen=True)
class Shown:
    """What a tensor is in the end, but for its values; equal on both devices.

    The stride of a dimension of one element says nothing, and kernels choose it as they like.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    bits: tuple[bool, bool]
    leaf: bool | None
    needs_gradient: bool
    bytes: int
    storage: int


def beginning(device: torch.device, rows: int) -> list[Tensor]:
    count = float(rows * 4)
    leaf = (torch.arange(count).view(rows, 4) / 4 - 1).to(device).requires_grad_()
    plain = (torch.arange(6.0).view(2, 3) / 2).to(device)
    whole = torch.arange(5).to(device)
    return [leaf * 1.0, plain, leaf, whole]


def undefined(x: Tensor) -> bool:
    """Whether elements of it meet in memory in a way that PyTorch does not look for."""
    if any(size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride(), strict=True)):
        return False
    places = [
        sum(at * stride for at, stride in zip(where, x.stride(), strict=True))
        for where in itertools.product(*map(range, x.shape))
    ]
    return len(set(places)) < len(places)


def take(step: Step, pool: list[Tensor], number: int) -> Any:
    """One step; what it shows, or the kind of error it raises."""
    x, y = pool[step.first % len(pool)], pool[step.second % len(pool)]
    if step.kind in WRITERS and (undefined(x) or undefined(y)):
        return "undefined"
    try:
        if step.kind in VIEWS:
            found = VIEWS[step.kind](x, number)
        else:
            found = OTHERS[step.kind](x, y, number)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return type(error).__name__
    if step.kind in MAKERS:
        if found.numel() <= MOST and not any(found is other for other in pool):
            pool.append(found)
        return None
    return on_host(found) if step.kind in READS or step.kind in GRADIENTS else None


def _is_leaf(x: Tensor) -> bool | None:
    """``None`` where PyTorch refuses to say: one of several views, written to in place."""
    try:
        return x.is_leaf
    except RuntimeError:
        return None


def shown(pool: list[Tensor]) -> list[Shown]:
    storages: dict[int, int] = {}
    return [
        Shown(
            tuple(x.shape),
            tuple(step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1),
            x.storage_offset(),
            x.dtype,
            (x.is_conj(), x.is_neg()),
            _is_leaf(x),
            x.requires_grad,
            x.untyped_storage().nbytes(),
            storages.setdefault(x.untyped_storage()._cdata, len(storages)),
        )
        for x in pool
    ]


def execute(
    program: Program, device: torch.device, run: int, elsewhere: ThreadPoolExecutor
) -> tuple[list[Any], list[Tensor], list[Shown]]:
    """One run: what its steps show, its tensors in the end on the host, and what they are."""
    rows = 3 + (run // 3 if program.grows else 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pool = beginning(device, rows)
        seen = []
        for step in program.steps:
            number = step.number + (run if step.varies else 0)
            call: Callable[[], Any] = lambda: take(step, pool, number)  # noqa: B023, E731
            seen.append(elsewhere.submit(call).result(120) if step.thread else call())
        return seen, on_host(pool), shown(pool)
