"""The disk and the shared tier: checked entries over a store of blobs, behind a breaker.

Lookups use the methods that never raise: here, and nowhere else, a failure of a tier becomes
a miss, that is a counter, one warning a kind, and the caller makes what it wanted. What
somebody asked for (``fuse.cache.control``) runs the others by ``run``, and hears of failures.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, ParamSpec, TypeVar, final

from fuse.cache.circuit_breaker import CircuitBreaker
from fuse.cache.counters import Counters, Notices
from fuse.cache.entry import (
    PREFIX_BYTES,
    Entry,
    Header,
    header_bytes_needed,
    pack,
    read_header,
    unpack,
)
from fuse.cache.errors import CacheTrustError, EntryRejectedError, TierBypassError
from fuse.cache.key import Key
from fuse.cache.memory import Live
from fuse.cache.store import Store

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Most headers fit in the first read of an explanation or a listing.
_FIRST_READ = 64 << 10


@final
class StoredTier:
    """Payloads by key, packed into entries; everything read is verified first."""

    def __init__(
        self,
        store: Store,
        breaker: CircuitBreaker,
        notices: Notices,
        *,
        secret: bytes | None,
        discard: bool,
    ) -> None:
        """Put the tier over ``store``. It has the name of ``breaker``.

        Args:
            store: where the blobs are.
            breaker: bounds every operation.
            notices: takes the warnings.
            secret: signs what is written and is demanded of what is read; None for a tier
                whose folder only this user can write.
            discard: whether a damaged entry is removed when it is met.
        """
        self.name = breaker.name
        self.store = store
        self.breaker = breaker
        self.counters = Counters()
        self._notices = notices
        self._secret = secret
        self._discard = discard

    # Raising, on whatever thread calls

    def run(
        self, action: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Call ``action`` with these arguments, bounded by the breaker.

        Raises:
            TierBypassError: the tier does not answer now, or not in time.
            OSError: or whatever else ``action`` raises.
        """
        return self.breaker.run(partial(action, *args, **kwargs))

    def read(self, digest: str) -> Entry | None:
        """Return the verified entry of ``digest``, or None when there is none.

        Raises:
            EntryRejectedError: what is stored must not be used; it is gone afterwards when
                the tier discards.
            OSError: or what a remote store's driver raises.
        """
        try:
            blob = self.store.read(digest)
            if blob is None:
                return None
            signed = self._secret is not None
            return unpack(blob, digest=digest, secret=self._secret, signed=signed)
        except EntryRejectedError:
            self._remove(digest)
            raise

    def write(self, key: Key, payload: bytes) -> None:
        """Store the payload of ``key``, in place of what was there. Raises as ``Store.write``."""
        # The time of writing is for people; nothing is decided by it.
        self.store.write(key.digest, pack(key, payload, created=time.time(), secret=self._secret))

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

    # Never raising, bounded and counted

    def get(
        self, digest: str, *, seconds: float | None = None, count_miss: bool = True
    ) -> Entry | None:
        """Return the verified entry of ``digest``, or None for whatever reason.

        Args:
            digest: of the key.
            seconds: after so many the read is left alone, as one of a tier that is late but
                sound; None waits for the breaker's bound.
            count_miss: False where the one who asks has asked before, or will again.
        """
        reading = self.start(digest)
        if reading is None or not self.in_time(reading, seconds):
            return None
        return self.finish(reading, count_miss=count_miss)

    def start(self, digest: str) -> Future[Entry | None] | None:
        """Start to read; None, counted, when the tier does not take the question."""
        return self.guard("get", lambda: self.breaker.start(lambda: self.read(digest)))

    def in_time(self, reading: Future[Entry | None], seconds: float | None) -> bool:
        """Say whether a read ends within ``seconds``; one that does not is counted as late."""
        if seconds is None or wait((reading,), timeout=seconds).done:
            return True
        self.abandon()
        return False

    def finish(
        self,
        reading: Future[Entry | None],
        seconds: float | None = None,
        *,
        count_miss: bool = True,
    ) -> Entry | None:
        """Return the entry of a started read, or None for whatever reason."""

        def answer() -> Entry | None:
            entry = self.breaker.wait(reading, seconds)
            if entry is None and count_miss:
                self.counters.add("misses")
            return entry

        return self.guard("get", answer)

    def load(self, entry: Entry, load: Callable[[bytes], Any]) -> Live | None:
        """Return the object of an entry that this tier gave, or None where it is refused."""
        key = entry.header.key
        try:
            return Live(key, load(entry.payload), len(entry.payload), self.name)
        # A backend refuses bytes that are what was once stored, in words of its own.
        except Exception as error:  # noqa: BLE001
            self.reject(key, "load", f"{type(error).__name__}: {error}")
            return None

    def abandon(self) -> None:
        """Count a started read that nobody waits for any more."""
        self.counters.add_reason("bypasses", "late")

    def put(self, key: Key, payload: bytes) -> bool:
        """Store a payload; say whether it is stored."""

        def write() -> bool:
            self.run(self.write, key, payload)
            self.counters.add("puts")
            return True

        return self.guard("put", write) is True

    def reject(self, key: Key, reason: str, text: str) -> None:
        """Count a payload that turned out unusable, warn, and remove it where that is done."""
        self._rejected(reason, text)
        self.guard("remove", lambda: self.run(self._remove, key.digest))

    def guard(self, action: str, call: Callable[[], Result]) -> Result | None:
        """Return what ``call`` returns; None, counted and warned of, when it raises."""
        try:
            return call()
        except EntryRejectedError as error:
            self._rejected(error.reason, str(error))
        except CacheTrustError as error:
            self.counters.add_reason("bypasses", f"untrusted-{error.reason}")
            self._warn(f"untrusted-{error.reason}", str(error))
        except TierBypassError as error:
            self.counters.add_reason("bypasses", error.reason)
            if error.warn:
                self._warn(error.reason, str(error))
        # Stores raise what their drivers raise, which no list covers. None of it may reach
        # a training step; all of it is counted, and said once a kind.
        except Exception as error:  # noqa: BLE001
            name = _name_of(error)
            self.counters.add_reason("failures", f"{action}-{name}")
            self._warn(name, f"{action} failed: {type(error).__name__}: {error}")
        return None

    def _remove(self, digest: str) -> None:
        """Remove an entry that was found unusable, where this tier does that."""
        if self._discard:
            self.store.remove(digest)

    def _rejected(self, reason: str, text: str) -> None:
        self.counters.add_reason("rejections", reason)
        self._warn(f"rejected-{reason}", f"an entry was rejected ({reason}): {text}")

    def _warn(self, kind: str, text: str) -> None:
        self._notices.add(f"{self.name}-{kind}", f"compilation cache, {self.name} tier: {text}")


def _name_of(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return type(error).__name__ if number is None else errno.errorcode.get(number, str(number))
