"""The interface of a tier: two methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from fuse.cache.key import Key

Value = TypeVar("Value")


class Tier(ABC, Generic[Value]):
    """One level of the cache: live objects in memory, bytes in the slower tiers."""

    @abstractmethod
    def get(self, key: Key) -> Value | None:
        """Return what is stored under ``key``, or None when nothing is.

        Raises:
            EntryRejectedError: something is stored and must not be used.
            TierBypassError: the tier does not answer now.
            OSError, or what a remote store's driver raises: the tier failed.
        """

    @abstractmethod
    def put(self, key: Key, value: Value) -> None:
        """Store ``value`` under ``key``, in place of what was there. Raises as ``get`` does."""
