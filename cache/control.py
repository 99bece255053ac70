"""What people do to a cache: list it, clear it, prune it, verify it.

Every function works on one level, and every operation on it has the level's bound.
Failures raise here, unlike in a lookup: somebody asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import final

from fuse.cache.entry import Header
from fuse.cache.errors import EntryRejectedError
from fuse.cache.key import Key
from fuse.cache.lease import sweep
from fuse.cache.level import Level
from fuse.cache.store import Stored

# An explanation looks at this many entries, the most recently used, for this long.
_MAX_COMPARED = 512
_MAX_SECONDS = 5.0


@final
@dataclass(frozen=True, slots=True)
class Listed:
    """One stored entry: file facts, and its header, or the reason why it cannot be read."""

    stored: Stored
    header: Header | None
    problem: str


@final
@dataclass(slots=True)
class Verified:
    """What ``verify`` found.

    Attributes:
        sound: how many entries passed every check.
        rejected: reason by digest.
        foreign: names in the folder that are no entries.
    """

    sound: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)


def listing(level: Level) -> list[Listed]:
    """Return what a level stores, most recently used first."""
    return [_listed(level, stored) for stored in reversed(_contents(level))]


def clear(level: Level) -> int:
    """Remove every entry of a level; return how many there were."""
    contents = _contents(level)
    for stored in contents:
        level.gate.run(partial(level.tier.store.remove, stored.digest))
    return len(contents)


def prune(level: Level, max_bytes: int, directory: Path | None = None) -> int:
    """Remove least recently used entries until at most ``max_bytes`` stay; return how many.

    With the ``directory`` of a disk tier, lease files of dead processes go as well.
    """
    removed = level.gate.run(partial(level.tier.store.prune, max_bytes))
    if directory is not None:
        level.gate.run(partial(sweep, directory))
    return removed


def verify(level: Level) -> Verified:
    """Read and check every entry of a level. A tier that discards removes the damaged ones."""
    result = Verified(foreign=level.gate.run(level.tier.store.foreign))
    for stored in _contents(level):
        digest = stored.digest
        try:
            entry = level.gate.run(partial(level.tier.entry, digest))
        except EntryRejectedError as error:
            level.counters.add_reason("rejections", error.reason)
            result.rejected[digest] = error.reason
        else:
            # None: evicted by another process since it was listed.
            result.sound += entry is not None
    return result


def stored_keys(level: Level) -> Iterator[Key]:
    """Yield the keys of a level's entries, most recently used first; bounded, never raising."""
    deadline = time.monotonic() + _MAX_SECONDS
    contents = level.guard("explain", partial(_contents, level)) or []
    for stored in contents[: -_MAX_COMPARED - 1 : -1]:
        if time.monotonic() >= deadline:
            return
        header = level.guard("explain", partial(_header, level, stored.digest))
        if header is not None:
            yield header.key


def _contents(level: Level) -> list[Stored]:
    return level.gate.run(level.tier.store.contents)


def _header(level: Level, digest: str) -> Header | None:
    return level.gate.run(partial(level.tier.header, digest))


def _listed(level: Level, stored: Stored) -> Listed:
    try:
        header = _header(level, stored.digest)
    except EntryRejectedError as error:
        return Listed(stored, None, error.reason)
    # None: evicted by another process since it was listed.
    return Listed(stored, header, "" if header is not None else "gone")
