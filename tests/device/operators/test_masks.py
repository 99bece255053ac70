"""Assigning by a mask: no host read where the value does not depend on how many it selects."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import fuse
from tests.device.helpers import DEVICE, made

Assign = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of x[4, 3, 5], a mask of its shape, and rows[4, 3]: what x has become."""


def put(x: torch.Tensor, indices: object, value: object) -> torch.Tensor:
    x[indices] = value
    return x


def put_in_view(x: torch.Tensor, mask: torch.Tensor, value: object) -> torch.Tensor:
    x.transpose(0, 1)[1:][mask.transpose(0, 1)[1:]] = value
    return x


WITHOUT_READING: dict[str, Assign] = {
    "a number": lambda x, m, r: put(x, m, -1.0),
    "a tensor of one number": lambda x, m, r: put(x, m, r.sum()),
    "one number of the host": lambda x, m, r: x.index_put_((m,), torch.tensor(2.0)),
    "a number of another dtype": lambda x, m, r: x.index_put_((m,), r[0, 1].double()),
    "a fraction for integers": lambda x, m, r: x.int().index_put_((m,), r[0, 1].double() + 0.7),
    "a value of many dimensions": lambda x, m, r: x.index_put_((m,), r[:1, :1]),
    "a value of one element": lambda x, m, r: put(x, m, r[:1, 0]),
    "leading dimensions": lambda x, m, r: put(x, m[:, :, 0], 7.0),
    "a row for all selected": lambda x, m, r: put(x, m[:, 0, 0], r[1][:, None] * 2),
    "a row with one in front": lambda x, m, r: put(x, m[:, 0, 0], r[None, 1, :, None]),
    "the middle": lambda x, m, r: put(x, (slice(None), m[0, :, 0]), r[:, :1, None]),
    "the last": lambda x, m, r: put(x, (..., m[0, 0]), r[:, :, None]),
    "the last two": lambda x, m, r: put(x, (slice(None), m[0]), r[:, :1]),
    "a view": lambda x, m, r: put_in_view(x, m, 3.0),
    "out of place": lambda x, m, r: torch.index_put(x, (m,), r[0, 0]) + x,
    "integers": lambda x, m, r: put(x.int(), m, 5),
    "truth values": lambda x, m, r: put(x > 1, m, True),
    "nothing is true": lambda x, m, r: put(x, m & ~m, 1.0),
    "all is true": lambda x, m, r: put(x, m | ~m, 1.0),
}
READING: dict[str, Assign] = {
    "a value for each": lambda x, m, r: put(x, m, torch.arange(int(m.sum()), device=x.device) / 2),
    "values are added": lambda x, m, r: x.index_put_((m,), r[0, 0], accumulate=True),
    "two masks": lambda x, m, r: put(x, (m[:, 0, 0], m[0, :, 0].any()), 1.0),
    "a mask and numbers": lambda x, m, r: put(x, (m[:, 0, 0], torch.tensor([0, 0])), 1.0),
    "its own mask": lambda x, m, r: put(m, m, False),
    "bytes": lambda x, m, r: put(x, m.byte(), torch.arange(int(m.sum()), device=x.device) / 2),
}


def arguments(device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.linspace(-2, 2, 60).reshape(4, 3, 5)
    mask = (torch.arange(60) * 7 % 11 < 5).reshape(4, 3, 5)
    return x.to(device), mask.to(device), torch.arange(12.0).reshape(4, 3).to(device)


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("name", [*WITHOUT_READING, *READING])
def test_values_are_pytorchs(name: str):
    assign = (WITHOUT_READING | READING)[name]
    expected = assign(*arguments("cpu"))
    for _ in range(3):
        found = assign(*arguments(DEVICE))
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("name", WITHOUT_READING)
def test_nothing_is_read(name: str):
    given = arguments(DEVICE)
    torch.tpu.synchronize()
    before = fuse.stats()["cuts"]
    found = WITHOUT_READING[name](*given)
    assert fuse.stats()["cuts"] == before
    found.cpu()


def test_selecting_another_number_of_elements_makes_nothing():
    x = torch.linspace(-1, 1, 20, device=DEVICE)
    counts = []
    for number in range(8):
        y = x * 1
        y[y > number / 10] = 0.5
        y.sum().item()
        counts.append(made())
    assert counts[-1] == counts[2]


@pytest.mark.parametrize("name", ["a tensor of one number", "leading dimensions", "out of place"])
def test_gradients_are_pytorchs(name: str):
    gradients = []
    for device in ("cpu", DEVICE):
        x, mask, rows = arguments(device)
        x.requires_grad_()
        rows.requires_grad_()
        WITHOUT_READING[name](x * 2, mask, rows).square().sum().backward()
        gradients.append([one.grad if one.grad is None else one.grad.cpu() for one in (x, rows)])
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("name", "assign"),
    [
        ("a mask of another shape", lambda x, m, r: put(x, m[:, :2], 1.0)),
        ("too many values", lambda x, m, r: put(x, m[:, 0, 0], r[0, :2])),
        ("another dtype", lambda x, m, r: x.index_put_((m[:, 0, 0],), r[1, :, None].double())),
        ("values of no element", lambda x, m, r: x.index_put_((m & ~m,), r[:1, :0])),
        ("added values", lambda x, m, r: x.index_put_((m,), r[:1, :1], accumulate=True)),
        (
            "positions",
            lambda x, m, r: x.index_put_((torch.tensor([0, 1], device=x.device),), r[None, :2, :1]),
        ),
        ("too many dimensions", lambda x, m, r: x.index_put_((m,), r[:2, :1])),
    ],
)
def test_errors_are_pytorchs(name: str, assign: Assign):
    with pytest.raises(Exception) as expected:  # noqa: PT011  (its type and text are compared)
        assign(*arguments("cpu"))
    with pytest.raises(type(expected.value), match=re.escape(str(expected.value)[:40])):
        assign(*arguments(DEVICE)).cpu()
