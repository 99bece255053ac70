"""Every check of one entry of ``module_db``."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db

from tests.coverage import special
from tests.coverage.comparing import (
    Mismatch,
    compare_nest,
    compare_values,
    same_distribution,
)
from tests.coverage.record import Outcome, outcome_of
from tests.coverage.samples import spread
from tests.coverage.transfer import Transfer, tensors_of

SAMPLES = 3
DRAWS = 60
ENTRIES: dict[str, Any] = {info.name: info for info in module_db}


def checks(entry: str, quick: bool = False) -> Iterator[tuple[str, Outcome]]:
    """Forward, gradients and state of the module, in training and (not quick) in evaluation."""
    check = _Module(ENTRIES[entry], f"module:{entry}")
    for training, name in ((True, "training"), (False, "evaluation"))[: 1 if quick else 2]:
        outcome = outcome_of(check.samples(training), check.run)
        if outcome is not None:
            yield name, outcome


class _Module:
    def __init__(self, info: Any, key: str) -> None:
        self.info = info
        self.loosen = special.TOLERANCE.get(key, 1.0)

    def samples(self, training: bool) -> Iterator[tuple[torch.nn.Module, Any]]:
        torch.manual_seed(0)
        inputs = self.info.module_inputs_func(
            self.info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
        for given in spread(inputs, SAMPLES):
            if given.forward_input is None:
                continue
            made = given.constructor_input
            torch.manual_seed(0)
            module = self.info.module_cls(*made.args, **made.kwargs)
            module = module.to(torch.float32).train(training)
            if self.info.is_lazy:
                moved = Transfer("cpu")(given.forward_input.args)
                module(*moved, **given.forward_input.kwargs)
            yield module, given.forward_input

    def run(self, sample: tuple[torch.nn.Module, Any]) -> None:
        module, given = sample
        right, expected = _forward_backward(module, given, "cpu")
        left, found = _forward_backward(module, given, "tpu")
        random = _is_random(module, given)
        compare_nest(left, right, values=False)
        if random:
            same_distribution(*(_draw(module, given, device) for device in ("tpu", "cpu")))
            return
        for one, other in zip(tensors_of(left), tensors_of(right), strict=True):
            compare_values(one, other, loosen=self.loosen)
        for name, other in expected.items():
            one = found[name]
            if (one is None) != (other is None):
                raise Mismatch(f"{name}: {one} instead of {other}")
            if other is not None:
                compare_values(one, other, f"{name}: ", 10 * self.loosen)


def _forward_backward(
    module: torch.nn.Module, given: Any, device: str
) -> tuple[Any, dict[str, Any]]:
    """Results, and gradients and buffers by name."""
    module = copy.deepcopy(module).to(device)
    args, kwargs = Transfer(device)((given.args, given.kwargs))
    torch.manual_seed(0)
    result = module(*args, **kwargs)
    heads = [t for t in tensors_of(result) if t.requires_grad]
    if heads:
        torch.manual_seed(1)
        seeds = [torch.randn(t.shape, dtype=t.dtype).to(device) for t in heads]
        torch.autograd.backward(heads, seeds)
    found = {f"gradient of {name}": p.grad for name, p in module.named_parameters()}
    found |= {f"gradient of input {i}": t.grad for i, t in enumerate(tensors_of((args, kwargs)))
              if t.requires_grad}  # fmt: skip
    return result, found | {f"buffer {name}": b for name, b in module.named_buffers()}


def _draw(module: torch.nn.Module, given: Any, device: str) -> list[torch.Tensor]:
    module = copy.deepcopy(module).to(device)
    torch.manual_seed(0)
    pool: list[torch.Tensor] = []
    for _ in range(DRAWS):
        args, kwargs = Transfer(device)((given.args, given.kwargs))
        pool += [t.detach() for t in tensors_of(module(*args, **kwargs))]
    return pool


def _is_random(module: torch.nn.Module, given: Any) -> bool:
    results = []
    for seed in (1, 2):
        fresh = copy.deepcopy(module)
        args, kwargs = Transfer("cpu")((given.args, given.kwargs))
        torch.manual_seed(seed)
        results.append(tensors_of(fresh(*args, **kwargs)))
    return any(not torch.allclose(a, b, equal_nan=True) for a, b in zip(*results, strict=True))
