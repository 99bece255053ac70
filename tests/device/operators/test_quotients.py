"""A quotient is rounded once, whatever it is divided by: XLA multiplies by the reciprocal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.device.helpers import DEVICE

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "a number": lambda x: x / 49,
    "a number that varies": lambda x: x / float(x.shape[0]),
    "a number, in place": lambda x: x.clone().div_(49),
    "a power of two": lambda x: x / 4,
    "one element": lambda x: x / x[0, 0],
    "rows": lambda x: x / x[:, :1],
    "columns": lambda x: x / x[:1],
    "an expanded view": lambda x: x / x[:, :1].expand_as(x),
    "what is made inside": lambda x: x / (x.amax(1, keepdim=True) - x.amin(1, keepdim=True)),
    "truncated by the program": lambda x: (x * 49 / 49).long(),
    "rounded down by the program": lambda x: (x * x[:, :1] / x[:, :1]).floor(),
    "a mean of equal numbers": lambda x: torch.full_like(x, 7.0).mean(1),
    "decimals": lambda x: torch.round(x.sqrt(), decimals=2),
    "addcdiv": lambda x: torch.addcdiv(x, x, x[:, :1]),
    "infinities": lambda x: torch.stack([x[0] / 0, -x[0] / 0, x[0] * 0 / 0, x[0] / torch.inf]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_quotient_is_the_cpus_to_the_last_bit(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(1, 1030, dtype=dtype).reshape(3, -1)
    expected = PROGRAMS[name](x)
    for _ in range(6):
        found = PROGRAMS[name](x.to(DEVICE)).cpu()
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
