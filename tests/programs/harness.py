"""Runs one program on the CPU and on the device and compares everything it returns.

A program is a function of a device. It makes its data and its models on the CPU, moves
them, and returns tensors, numbers or nests of them. Nothing else about it is special.
"""

from __future__ import annotations

import copy
import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map_only

from fuse.device import lazy

Program = Callable[[torch.device], Any]

CPU = torch.device("cpu")
DEVICE = torch.device("tpu")
STEADY_SECONDS = float(os.environ.get("FUSE_TEST_STEADY_SECONDS", 0))
"""Each program is run until it is steady, or so long; 0: a few times."""


def on_host(result: Any) -> Any:
    """``result`` with every tensor as a detached CPU copy, as it was at this moment."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu().clone(), result)


def run(program: Program, device: torch.device) -> Any:
    """One run of ``program`` from the standard random state."""
    torch.manual_seed(0)
    return on_host(program(device))


def assert_same(found: Any, expected: Any, rtol: float, atol: float, where: str) -> None:
    """Assert that two nests have one structure, close tensors and numbers, and equal rest."""
    leaves, shape = tree_flatten_with_path(expected)
    others, other_shape = tree_flatten_with_path(found)
    assert shape == other_shape, f"{where}: {other_shape} is not {shape}"
    for (path, right), (_, left) in zip(leaves, others, strict=True):
        place = f"{where}, result{keystr(path)}"
        if isinstance(right, torch.Tensor | float | complex):
            torch.testing.assert_close(
                left,
                right,
                rtol=rtol,
                atol=atol,
                equal_nan=True,
                msg=lambda text, place=place: f"{place}: {text}",
            )
        else:
            assert left == right, place


def compare_with_cpu(
    program: Program,
    runs: int = 3,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    """Assert that ``program`` gives the CPU's results in the current mode, each of ``runs`` times.

    The runs after the first take the recorder's path for known streams. Dtypes, shapes and
    the structure of the result are compared as well; NaNs are equal to each other. No operator
    may fall back to the host.
    """
    expected = run(program, CPU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSE_HOST_FALLBACK", "error")
        for number in steady_runs(STEADY_SECONDS) if STEADY_SECONDS else range(runs):
            found = run(program, DEVICE)
            assert_same(found, expected, rtol, atol, f"run {number + 1}")


def steady_runs(seconds: float, least: int = 3) -> Iterator[int]:
    """Numbers of runs of a program until it is steady, or for so long.

    Where tiers are chosen that is when a segment has been compiled, and both tiers have been tried;
    elsewhere after 80 runs.
    """
    chosen, before = lazy.engine().tier == "auto", _trials()
    end = time.monotonic() + seconds
    for number in itertools.count():
        steady = _trials() > before if chosen else number >= 80
        if number >= least and (steady or time.monotonic() > end):
            return
        yield number


def _trials() -> int:
    """How often tiers have been compared so far."""
    return sum(kind["trials"] for kind in lazy.core().tiers())


def train(
    model: torch.nn.Module,
    batch: tuple[torch.Tensor, ...],
    loss_of: Callable[..., torch.Tensor],
    device: torch.device,
    steps: int = 4,
    lr: float = 0.1,
) -> dict[str, Any]:
    """``steps`` of plain SGD on a copy of ``model``: the losses and the final state."""
    model = copy.deepcopy(model).to(device)
    batch = tuple(tensor.to(device) for tensor in batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": dict(model.state_dict())}
