"""What a call means does not depend on how it runs: the CPU's type, size, strides or error.

Every entry of PyTorch's operator database is called with what it may refuse (``meanings``): a call
that is recorded is answered before anything is computed, so that no kernel of PyTorch's checked it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuse.device import lazy
from tests.coverage.operators import ENTRIES
from tests.device.helpers import DEVICE
from tests.device.operators.meanings import (
    COMPOSED,
    COUNTED,
    DATA,
    agrees,
    answer,
    calls,
    reason_of,
)
from tests.marks import slow_but

PIECES = 32
QUICK = range(0, PIECES, 8)
NAMES = sorted(ENTRIES)


def _different(name: str) -> dict[str, str]:
    """What the device answers otherwise than the CPU, of the calls of one entry."""
    found = {}
    for call, sample in calls(name, ENTRIES[name]):
        expected = answer(ENTRIES[name].op, sample, "cpu")
        given = answer(ENTRIES[name].op, sample, "tpu")
        if not agrees(given, expected):
            found[call] = f"{given}, on the CPU {expected}"
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")  # those that PyTorch gives once a process
@pytest.mark.parametrize("piece", slow_but(QUICK, range(PIECES)))
def test_every_operator_answers_as_on_the_cpu(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    # What is wrong with a recorded call's data is said where a later one reads.
    monkeypatch.setattr(lazy.engine().data_checks, "_check", lambda states: None)
    problems = [
        f"{call}: {what}"
        for name in NAMES[piece::PIECES]
        for call, what in _different(name).items()
        if reason_of(call) is None
    ]
    assert "\n".join(problems) == ""


def test_a_reason_is_given_for_what_differs() -> None:
    given = {reason_of(call) for name in ("gather", "histc", "unique") for call in _different(name)}
    # Uncompiled, data is looked at.
    assert {COUNTED, COMPOSED} <= given <= {DATA, COUNTED, COMPOSED}


LOOPS: dict[str, Callable[[Tensor], object]] = {
    "softmax": lambda x: x.softmax(3),
    "sort": lambda x: x.sort(3),
    "layer_norm": lambda x: F.layer_norm(x.double(), (6,), x.new_ones(6)),
    "cdist": lambda x: torch.cdist(x.double(), x),
    "index_add": lambda x: x.index_add(0, torch.zeros(4, device=x.device).long(), x.half()),
    "convolution": lambda x: F.conv1d(x[None], x.new_ones(2, 4, 1).double()),
    "uniform": lambda x: x.clone().uniform_(2, 1),
    "power": lambda x: (x > 0) ** (x > 1),
    "huber_loss": lambda x: F.huber_loss(x.half(), x, reduction="none"),
    "comparison": lambda x: x.bool() < 2,
    "out=": lambda x: torch.mm(x, x.t(), out=torch.empty(4, 4, device=x.device).double()),
}


@pytest.mark.parametrize("name", LOOPS)
def test_nothing_changes_in_a_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    x = torch.linspace(-2, 2, 24).reshape(4, 6)
    expected = answer(LOOPS[name], (x, (), {}), "cpu")
    for call in range(100):
        assert answer(LOOPS[name], (x, (), {}), "tpu") == expected, call
        if call % 10 == 9:
            torch.tpu.synchronize()


def test_a_large_call_is_asked_about_with_fewer_elements() -> None:
    x, weight = torch.ones(64, 512, device=DEVICE), torch.ones(512, device=DEVICE)
    assert F.layer_norm(x.half(), (512,), weight, weight).dtype == torch.float16
    with pytest.raises(RuntimeError, match="mixed dtype"):
        F.layer_norm(x.double(), (512,), weight)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.softmax(2)
    with pytest.raises(RuntimeError, match="expected scalar type|same dtype"):
        torch.cdist(x.double(), x)
