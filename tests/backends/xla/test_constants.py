"""Masks that are the same in every run are known while a program is compiled; others are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuse.backends.xla import constants
from fuse.backends.xla.platform import Attention, Platform
from tests.device.helpers import DEVICE, compile_anew, recorder

L = 12


def indices() -> tuple[Tensor, Tensor]:
    return torch.arange(L, device=DEVICE)[:, None], torch.arange(L, device=DEVICE)


def window() -> Tensor:
    i, j = indices()
    return (i >= j) & (i - j < 5)


def written() -> Tensor:
    mask = torch.zeros(L, L, dtype=torch.bool, device=DEVICE)
    mask[:, :3] = True
    return mask.logical_or_(window())


def additive() -> Tensor:
    least = torch.finfo(torch.bfloat16).min
    return torch.full((L, L), least, device=DEVICE, dtype=torch.bfloat16).triu(1)


KNOWN: dict[str, Callable[[], Tensor]] = {
    "window": window,
    "ones": lambda: torch.ones(L, L, dtype=torch.bool, device=DEVICE).tril(),
    "written": written,
    "additive": additive,
    "a view": lambda: window().t()[None, None],
}


def asked_of(patch: pytest.MonkeyPatch, *masks: Callable[[], Tensor]) -> list[np.ndarray | None]:
    """What the platform is told of the masks, by programs that are compiled for these calls."""
    found: list[np.ndarray | None] = []
    last: list[np.ndarray | None] = []  # after those of the rule tried by itself

    def attention(self: Platform, asked: Attention) -> None:
        found.append(asked.constant())

    with patch.context() as inside, recorder(tier="compiled"):
        compile_anew(inside)
        inside.setattr(Platform, "attention", attention)
        for mask in masks:
            q = torch.ones(1, 2, L, 8, device=DEVICE, dtype=torch.bfloat16)
            F.scaled_dot_product_attention(q, q, q, mask()).cpu()
            last.append(found[-1])
    return last


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_made_of_indices_is_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (known,) = asked_of(monkeypatch, KNOWN[name])
    assert known is not None
    wanted = KNOWN[name]().cpu()
    if wanted.dtype == torch.bool:  # what PyTorch makes of one
        wanted = torch.where(wanted, 0.0, -torch.inf)
    assert np.array_equal(known.astype(np.float32), wanted.float().numpy())


def test_what_comes_from_outside_or_is_drawn_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    given = window().cpu().to(DEVICE)
    others = (
        lambda: given,
        lambda: window() & given,
        lambda: torch.rand(L, L, device=DEVICE) < 0.5,
    )
    assert asked_of(monkeypatch, *others) == [None] * 3


def test_a_number_that_varies_is_no_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    def below(size: float) -> Callable[[], Tensor]:
        return lambda: (indices()[0] - indices()[1]) * 1.0 < size

    first, *_, last = asked_of(monkeypatch, *map(below, (3.0, 4.0, 5.0)))
    assert first is not None and last is None


def test_what_is_large_or_of_many_nodes_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_ELEMENTS", L * L - 1), ("MOST_NODES", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(constants, name, most)
            assert asked_of(monkeypatch, window) == [None]
