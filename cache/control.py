"""What people do to a cache: list it, clear it, prune it, verify it.

Every function works on one stored tier, and every operation on it has the tier's bound.
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
from fuse.cache.store import Stored
from fuse.cache.stored import StoredTier

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


def listing(tier: StoredTier) -> list[Listed]:
    """Return what a tier stores, most recently used first."""
    return [_listed(tier, stored) for stored in reversed(_contents(tier))]


def clear(tier: StoredTier) -> int:
    """Remove every entry of a tier; return how many there were."""
    contents = _contents(tier)
    for stored in contents:
        tier.run(tier.store.remove, stored.digest)
    return len(contents)


def prune(tier: StoredTier, max_bytes: int, directory: Path | None = None) -> int:
    """Remove least recently used entries until at most ``max_bytes`` stay; return how many.

    With the ``directory`` of a disk tier, lease files of dead processes go as well.
    """
    removed = tier.run(tier.store.prune, max_bytes)
    if directory is not None:
        tier.run(sweep, directory)
    return removed


def verify(tier: StoredTier) -> Verified:
    """Read and check every entry of a tier. A tier that discards removes the damaged ones."""
    result = Verified(foreign=tier.run(tier.store.foreign))
    for stored in _contents(tier):
        digest = stored.digest
        try:
            entry = tier.run(tier.read, digest)
        except EntryRejectedError as error:
            tier.counters.add_reason("rejections", error.reason)
            result.rejected[digest] = error.reason
        else:
            # None: evicted by another process since it was listed.
            result.sound += entry is not None
    return result


def stored_keys(tier: StoredTier) -> Iterator[Key]:
    """Yield the keys of a tier's entries, most recently used first; bounded, never raising."""
    deadline = time.monotonic() + _MAX_SECONDS
    contents = tier.guard("explain", partial(_contents, tier)) or []
    for stored in contents[: -_MAX_COMPARED - 1 : -1]:
        if time.monotonic() >= deadline:
            return
        header = tier.guard("explain", partial(_header, tier, stored.digest))
        if header is not None:
            yield header.key


def _contents(tier: StoredTier) -> list[Stored]:
    return tier.run(tier.store.contents)


def _header(tier: StoredTier, digest: str) -> Header | None:
    return tier.run(tier.header, digest)


def _listed(tier: StoredTier, stored: Stored) -> Listed:
    try:
        header = _header(tier, stored.digest)
    except EntryRejectedError as error:
        return Listed(stored, None, error.reason)
    # None: evicted by another process since it was listed.
    return Listed(stored, header, "" if header is not None else "gone")
