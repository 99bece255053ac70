"""The interface of what holds blobs by digest: a private folder, a mounted folder, a remote."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from fuse.cache.key import is_digest

SUFFIX = ".fuse"


@final
@dataclass(frozen=True, slots=True)
class Stored:
    """One stored blob: its digest, its size, and when it was last used or written (seconds)."""

    digest: str
    size: int
    used: float


def name_of(digest: str) -> str:
    """Return the file name of a digest."""
    return digest + SUFFIX


def digest_of(name: str) -> str | None:
    """Return the digest that a file name stands for, or None for a foreign name."""
    digest, dot, rest = name.partition(".")
    return digest if dot + rest == SUFFIX and is_digest(digest) else None


class Store(ABC):
    """Blobs by digest. Every method may raise OSError or what a remote's driver raises.

    Attributes:
        evictions: how many blobs this object has removed to keep a bound.
    """

    evictions = 0

    @abstractmethod
    def read(self, digest: str) -> bytes | None:
        """Return a blob whole and note its use, or None when there is none.

        Raises:
            EntryRejectedError: the name is there and is not a file that may be read.
        """

    @abstractmethod
    def read_start(self, digest: str, count: int) -> bytes | None:
        """Return up to ``count`` leading bytes without noting a use."""

    @abstractmethod
    def write(self, digest: str, blob: bytes) -> None:
        """Store a blob so that no reader sees a part of it, in place of what was there.

        Raises:
            TierBypassError: the store has no room for it or may not be written.
        """

    @abstractmethod
    def contents(self) -> list[Stored]:
        """Return what is stored, least recently used first. Foreign names are left out."""

    @abstractmethod
    def foreign(self) -> list[str]:
        """Return the names in the store that are none of its own."""

    @abstractmethod
    def remove(self, digest: str) -> None:
        """Remove a blob; nothing happens when there is none."""

    @abstractmethod
    def prune(self, max_bytes: int) -> int:
        """Remove least recently used blobs until at most ``max_bytes`` stay; return how many."""
