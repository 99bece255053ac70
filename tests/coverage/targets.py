"""Entries compiled for a target: what its compiler refuses, entry by entry. Nothing is compared.

All samples of an entry, in every dtype, are one program where nothing in it reads on the host. Only
where that is refused is each dtype compiled alone, so that the record names those at fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch

from fuse.aot.data import failures_of
from fuse.aot.text import first_line, place
from fuse.device import lazy
from fuse.engine.targeted import Targeted
from tests.coverage import modules, operators, optimizers
from tests.coverage.operator_checks import Operator
from tests.coverage.record import FAILED, HOST, Fallbacks, Outcome
from tests.coverage.transfer import tensors_of

SAMPLES: Final = 2
"""Samples of each dtype: every one is a program of its own on the target."""
OTHERS: Final = {"module": modules, "optim": optimizers}


def checks(key: str, targeted: Targeted) -> Iterator[tuple[str, Outcome]]:
    """Compile an entry for the target, which is set; yields names and outcomes."""
    database, _, entry = key.partition(":")
    if database != "op":
        yield "compile", _checked(targeted, OTHERS[database], entry)
        return
    dtypes = dtypes_of(entry)
    whole = _compiled(targeted, entry, dtypes)
    if whole.agrees or len(dtypes) == 1:
        yield "compile", whole
        return
    for dtype in dtypes:
        yield f"compile {str(dtype).removeprefix('torch.')}", _compiled(targeted, entry, [dtype])


def dtypes_of(entry: str) -> list[torch.dtype]:
    """The dtypes that the coverage compares an entry in."""
    supported = operators.ENTRIES[entry].supported_dtypes("cpu")
    wanted = [dtype for dtype in operators.DTYPES if dtype in supported]
    return wanted or sorted(supported, key=str)[:1]


def _compiled(targeted: Targeted, entry: str, dtypes: Sequence[torch.dtype]) -> Outcome:
    check = Operator(operators.ENTRIES[entry], f"op:{entry}")
    outcome, fallbacks, start = Outcome(), Fallbacks(), len(targeted.runs)
    kept: list[Any] = []
    for dtype in dtypes:
        gradient = check.given.differentiable(dtype) and dtype == torch.float32
        for sample in check.given.plain(dtype, SAMPLES, gradient=gradient):
            # A sample that the CPU refuses, the device refuses too: the other checks compare that.
            with contextlib.suppress(Exception):
                kept.append(_run(check, sample, gradient))
                outcome.samples += 1
    _end()
    del kept
    return _judged(targeted, outcome, fallbacks, start)


def _run(check: Any, sample: Any, gradient: bool) -> list[torch.Tensor]:
    """An operator's results on the device, and the gradients of its inputs."""
    call = check.call(sample, "tpu")
    results = tensors_of(call(check.info))
    wanted = [one for one in tensors_of(call.inputs) if one.requires_grad]
    if not gradient or not wanted:
        return results
    heads = [one for one in results if one.requires_grad]
    seeds = [torch.ones_like(one) for one in heads]
    grads = torch.autograd.grad(heads, wanted, seeds, allow_unused=True) if heads else ()
    return [*results, *(one for one in grads if one is not None)]


def _checked(targeted: Targeted, database: Any, entry: str) -> Outcome:
    """The quick checks of a module or an optimizer, for what they run."""
    outcome, fallbacks, start = Outcome(), Fallbacks(), len(targeted.runs)
    for _, one in database.checks(entry, True):
        outcome.samples += one.samples
    _end()
    return _judged(targeted, outcome, fallbacks, start)


def _end() -> None:
    lazy.core().cut("synchronize")
    lazy.engine().wait()


def _judged(targeted: Targeted, outcome: Outcome, fallbacks: Fallbacks, start: int) -> Outcome:
    outcome.fallbacks = fallbacks.names()
    if outcome.fallbacks:
        outcome.status = HOST
    for number in dict.fromkeys(targeted.runs[start:]):
        for chunk in targeted.plans[number].chunks:
            estimate = targeted.estimate(chunk)
            if estimate.error:
                failure = failures_of(targeted, chunk, estimate)[0]
                operator = place({**failure, "source": ""})
                outcome.status = FAILED
                outcome.reason = f"{operator} {failure['kind']}: {first_line(failure['reason'])}"
                return outcome
    return outcome
