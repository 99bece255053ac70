"""Every check of one entry of ``op_db``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.coverage import samples
from tests.coverage.gradients import forward_and_gradient
from tests.coverage.operator_checks import Operator
from tests.coverage.record import Outcome, outcome_of
from tests.coverage.samples import VARIANT_SAMPLES

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)


def name_of(info: Any) -> str:
    """An entry's name with its variant."""
    variant = info.variant_test_name
    return f"{info.name}.{variant}" if variant else str(info.name)


ENTRIES: dict[str, Any] = {name_of(info): info for info in op_db}


def checks(entry: str, quick: bool = False) -> Iterator[tuple[str, Outcome]]:
    """Run every check that applies to ``entry``; yields names and outcomes.

    ``quick`` leaves only the first dtype and the errors: no variants.
    """
    info = ENTRIES[entry]
    check = Operator(info, f"op:{entry}")
    supported = info.supported_dtypes("cpu")
    wanted = [dtype for dtype in DTYPES if dtype in supported]
    wanted = wanted or sorted(supported, key=str)[:1]
    wanted = wanted[:1] if quick else wanted
    found: dict[str, Outcome | None] = {}
    for dtype in wanted:
        name = str(dtype).removeprefix("torch.")
        if check.given.differentiable(dtype):
            found |= forward_and_gradient(check, name, dtype)
        else:
            found[f"forward {name}"] = outcome_of(check.given.plain(dtype), check.forward)
    if not quick:
        found |= _variants(check, wanted[0])
    # Through Dynamo, which raises its own errors, there is nothing to compare.
    if info.error_inputs_func is not None and not samples.compiled:
        found["errors"] = outcome_of(check.given.errors(), check.error)
    yield from ((name, outcome) for name, outcome in found.items() if outcome is not None)


def _variants(check: Operator, main: torch.dtype) -> dict[str, Outcome | None]:
    found: dict[str, Outcome | None] = {}
    found["non-contiguous"] = outcome_of(check.given.noncontiguous(main), check.forward)
    found["zero-size"] = outcome_of(check.given.empty(main), check.forward)
    if check.info.supports_out:
        found["out="] = outcome_of(check.given.plain(main, VARIANT_SAMPLES), check.out)
    if check.info.get_inplace() is not None:
        samples = check.given.plain(main, VARIANT_SAMPLES)
        found["in-place"] = outcome_of(samples, check.inplace)
    return found
