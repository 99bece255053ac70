"""The disk and the shared tier: checked entries over a store of blobs."""

from __future__ import annotations

import time
from typing import final

from fuse.cache.entry import (
    PREFIX_BYTES,
    Entry,
    Header,
    header_bytes_needed,
    pack,
    read_header,
    unpack,
)
from fuse.cache.errors import EntryRejectedError
from fuse.cache.key import Key
from fuse.cache.store import Store
from fuse.cache.tier import Tier

# Most headers fit in the first read of an explanation or a listing.
_FIRST_READ = 64 << 10


@final
class StoredTier(Tier[bytes]):
    """Payloads by key, packed into entries; everything read is verified first."""

    def __init__(self, name: str, store: Store, *, secret: bytes | None, discard: bool) -> None:
        """Put the tier over ``store``.

        Args:
            name: the tier's name in statistics and messages.
            store: where the blobs are.
            secret: signs what is written and is demanded of what is read; None for a tier
                whose folder only this user can write.
            discard: whether a damaged entry is removed when it is met.
        """
        self.name = name
        self.store = store
        self._secret = secret
        self._discard = discard

    def get(self, key: Key) -> bytes | None:
        """Return the payload of ``key``, verified, or None. Raises as ``Tier.get``."""
        entry = self.entry(key.digest)
        return None if entry is None else entry.payload

    def put(self, key: Key, value: bytes) -> None:
        """Store the payload of ``key``. Raises as ``Tier.put``."""
        # The time of writing is for people; nothing is decided by it.
        self.store.write(key.digest, pack(key, value, created=time.time(), secret=self._secret))

    def entry(self, digest: str) -> Entry | None:
        """Return the verified entry of ``digest``, or None when there is none.

        Raises:
            EntryRejectedError: what is stored must not be used; it is gone afterwards when
                the tier discards.
        """
        try:
            blob = self.store.read(digest)
            if blob is None:
                return None
            signed = self._secret is not None
            return unpack(blob, digest=digest, secret=self._secret, signed=signed)
        except EntryRejectedError:
            self.discard(digest)
            raise

    def discard(self, digest: str) -> None:
        """Remove an entry that was found unusable, where this tier does that."""
        if self._discard:
            self.store.remove(digest)

    def header(self, digest: str) -> Header | None:
        """Return an entry's header without reading its payload, or None without an entry.

        Raises:
            EntryRejectedError: the stored bytes do not start as an entry, or not this one.
        """
        start = self.store.read_start(digest, _FIRST_READ)
        if start is None:
            return None
        needed = header_bytes_needed(start) if len(start) >= PREFIX_BYTES else 0
        if needed > len(start):
            start = self.store.read_start(digest, needed) or b""
        header = read_header(start)
        if header.key.digest != digest:
            text = f"entry {digest} holds the entry of {header.key.digest}"
            raise EntryRejectedError("swapped", text)
        return header
