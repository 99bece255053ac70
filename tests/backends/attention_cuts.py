"""Attention cut into blocks of queries where scores are fewer than a user's: what was cut."""

from __future__ import annotations

from typing import Any

import pytest

from fuse.backends.xla.rules import attention_blocks
from fuse.backends.xla.rules.attention_blocks import Cut, cut


def noted_cuts(monkeypatch: pytest.MonkeyPatch, scores: int, block: int) -> list[Cut]:
    """How each call is cut from now on, with so many bytes of scores whole and in a block."""
    monkeypatch.setattr(attention_blocks, "SCORES", scores)
    monkeypatch.setattr(attention_blocks, "BLOCK", block)
    cuts: list[Cut] = []

    def noted(*given: Any) -> Cut | None:
        found = cut(*given)
        cuts.extend([] if found is None else [found])
        return found

    monkeypatch.setattr(attention_blocks, "cut", noted)
    return cuts
