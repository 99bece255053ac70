"""What ends a lease: the writing that it was taken for, in whatever way that went."""

from __future__ import annotations

from typing import Any

import pytest

from fuse.cache.counters import Events, Notices
from fuse.cache.settings import CacheSettings
from fuse.cache.writer import Writer
from tests.cache.common import key_of

KEY = key_of("one")


class Turns:
    def __init__(self) -> None:
        self.ended: list[bool] = []

    def end(self, lease: Any, *, stored: bool) -> None:
        self.ended.append(stored)


class Disk:
    """A tier whose ``put`` returns this, or raises it."""

    def __init__(self, outcome: bool | Exception) -> None:
        self.outcome = outcome

    def put(self, key: Any, payload: bytes) -> bool:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


OUTCOMES = [True, False, MemoryError("no room")]


@pytest.mark.parametrize("mode", ["on", "read-only", "only", "off"])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
@pytest.mark.parametrize("way", ["made", "promoted"])
def test_a_lease_ends_with_what_came_of_the_writing(
    way: str, outcome: bool | Exception, mode: Any
) -> None:
    turns, lease, disk = Turns(), object(), Disk(outcome)
    parts: tuple[Any, ...] = (disk, None, turns, Events(), Notices())
    writer = Writer(CacheSettings(mode=mode, directory=None), *parts)
    if way == "made":
        writer.made(KEY, lambda: b"payload", lambda size: None, lease)  # type: ignore[arg-type]
    else:
        writer.promoted(KEY, b"payload", lease)  # type: ignore[arg-type]
    assert writer.flush(60)
    writes = mode in (("on",) if way == "made" else ("on", "only"))
    assert turns.ended == [writes and outcome is True]
