"""What PyTorch's own kernels warn of, once a process, when the rules' tests ask them.

Calls of ``torch.ops`` turn such warnings into Python's from PyTorch 2.15 on.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

TEXTS = (
    "Casting complex values to real",
    "_aminmax is deprecated",
    r"(var|std)\S*: degrees of freedom is <= 0",
    "The reduce argument of torch.scatter",
    r"index_reduce\(\) is in beta",
    "torch.triangular_solve is deprecated",
)


@pytest.fixture(autouse=True)
def pytorchs_own_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        for text in TEXTS:
            warnings.filterwarnings("ignore", text, UserWarning)
        yield
