"""Gradients in float64, as a gradcheck asks for them, of all of PyTorch's operator database."""

from __future__ import annotations

import pytest
import torch

import fuse
from tests.coverage.gradients import forward_and_gradient
from tests.coverage.operator_checks import Operator
from tests.coverage.operators import ENTRIES

OTHERWISE = {
    "bernoulli": "its draws are the device's own; one sample's are alike for the seeds tried",
    "to_sparse": "the device has no sparse tensors, and says so",
}
"""Entries that do not agree, and why."""


@pytest.mark.slow
@pytest.mark.refused
@pytest.mark.filterwarnings("ignore")  # of what is deprecated, and of what runs on the host
def test_they_are_the_cpus() -> None:
    differing, compared = {}, 0
    with fuse.FusedEager(backend="numpy"):  # what records and composes is every backend's
        for name, info in ENTRIES.items():
            if not info.supports_autograd:
                continue
            if torch.float64 not in info.supported_backward_dtypes("cpu"):
                continue
            compared += 1
            found = forward_and_gradient(Operator(info, f"op:{name}"), "float64", torch.float64)
            wrong = [one.reason for one in found.values() if one is not None and not one.agrees]
            if wrong:
                differing[name] = wrong
    assert set(differing) <= set(OTHERWISE) and compared > 500, differing
