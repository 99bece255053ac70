"""Every check of one entry of ``optim_db``."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import optim_db

from tests.coverage.comparing import compare_nest
from tests.coverage.record import Outcome, outcome_of
from tests.coverage.samples import spread
from tests.coverage.transfer import Transfer, tensors_of

STEPS = 4
QUICK_SAMPLES = 2
PRECISE = {"LBFGS": 2}
"""Optimizer -> steps, in float64. Its line search and curvature pairs amplify a rounding of the
first step, on the CPU alone too, until after a few steps nothing is left to compare."""
ENTRIES: dict[str, Any] = {info.name: info for info in optim_db}


def checks(entry: str, quick: bool = False) -> Iterator[tuple[str, Outcome]]:
    """The optimizer's samples in each implementation; parameters and state compared.

    ``quick`` runs ``QUICK_SAMPLES`` of them.
    """
    info = ENTRIES[entry]
    for implementation in ("loop", "foreach", "fused"):
        supported = implementation in ("loop", *info.supported_impls)
        if not supported or (implementation == "fused" and "cpu" not in info.supports_fused_on):
            continue
        samples = _samples(info, implementation)
        if quick:
            samples = iter(spread(samples, QUICK_SAMPLES))
        outcome = outcome_of(samples, lambda sample: _compare(info.optim_cls, sample))
        if outcome is not None:
            yield implementation, outcome


def _samples(info: Any, implementation: str) -> Iterator[dict[str, Any]]:
    for given in info.optim_inputs_func("cpu", torch.float32):
        kwargs = dict(given.kwargs)
        if implementation != "loop":
            if "differentiable" in kwargs or "foreach" in kwargs or "fused" in kwargs:
                continue
            kwargs[implementation] = True
        elif "foreach" in info.supported_impls:
            kwargs["foreach"] = False
        yield kwargs


def _compare(optimizer: type[torch.optim.Optimizer], kwargs: dict[str, Any]) -> None:
    expected = _train(optimizer, kwargs, "cpu")
    compare_nest(_train(optimizer, kwargs, "tpu"), expected)


def _train(optimizer: Any, kwargs: dict[str, Any], device: str) -> list[torch.Tensor]:
    """Parameters after a few steps on a smooth problem, and the optimizer's tensors."""
    torch.manual_seed(0)
    dtype = torch.float64 if optimizer.__name__ in PRECISE else torch.float32
    parameters = [torch.randn(4, 3, dtype=dtype), torch.randn(3, 5, dtype=dtype)]
    moved = [p.to(device).requires_grad_() for p in parameters]
    target = torch.randn(4, 5, dtype=dtype).to(device)
    options = {name: Transfer(device)(copy.deepcopy(value)) if name != "lr" else value
               for name, value in kwargs.items()}  # fmt: skip
    run = optimizer(moved, **options)

    def closure() -> torch.Tensor:
        run.zero_grad()
        loss = ((moved[0] @ moved[1]).tanh() - target).square().sum()
        loss.backward()
        return loss

    for _ in range(PRECISE.get(optimizer.__name__, STEPS)):
        run.step(closure)
    state = tensors_of([dict(entries) for entries in run.state.values()])
    return [t.detach() for t in [*moved, *state]]
