"""A stored tier as the cache uses it: bounded, counted, and never raising.

Here, and nowhere else, a failure of a tier becomes a miss: a counter, one warning a kind,
and the caller makes what it wanted.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar, final

from fuse.cache.counters import Counters, Notices
from fuse.cache.entry import Entry
from fuse.cache.errors import CacheTrustError, EntryRejectedError, TierBypassError
from fuse.cache.gate import Gate
from fuse.cache.key import Key
from fuse.cache.stored import StoredTier

Result = TypeVar("Result")


@final
class Level:
    """A stored tier behind its gate."""

    def __init__(self, tier: StoredTier, gate: Gate, notices: Notices) -> None:
        """Put the tier, the gate and the place of warnings together."""
        self.tier = tier
        self.gate = gate
        self.counters = Counters()
        self._notices = notices

    @property
    def name(self) -> str:
        """The tier's name."""
        return self.tier.name

    def get(self, key: Key, *, again: bool = False) -> bytes | None:
        """Return the verified payload of ``key``, or None for whatever reason; counted.

        Args:
            key: what is wanted.
            again: the same lookup asks a second time, and a second miss is not counted.
        """
        return self.settle(self.start_get(key), again=again)

    def entry(self, digest: str) -> Entry | None:
        """Return the verified entry under ``digest``, or None for whatever reason.

        No miss is counted: the one who asks by digest asks by key where there is none.
        """
        return self.guard("get", lambda: self.gate.run(lambda: self.tier.entry(digest)))

    def start_get(self, key: Key) -> Future[bytes | None] | None:
        """Start to read ``key``; None, counted, when the tier does not take the question."""
        return self.guard("get", lambda: self.gate.start(lambda: self.tier.get(key)))

    def settle(
        self,
        future: Future[bytes | None] | None,
        seconds: float | None = None,
        *,
        again: bool = False,
    ) -> bytes | None:
        """Return the payload of a started read, or None for whatever reason; misses counted."""
        if future is None:
            return None
        answered = False

        def wait() -> bytes | None:
            nonlocal answered
            payload = self.gate.wait(future, seconds)
            answered = True
            return payload

        payload = self.guard("get", wait)
        if answered and payload is None and not again:
            self.counters.add("misses")
        return payload

    def abandon(self) -> None:
        """Count a started read that nobody waits for any more."""
        self.counters.add_reason("bypasses", "late")

    def put(self, key: Key, payload: bytes) -> bool:
        """Store a payload; say whether it is stored. Counted."""

        def put() -> bool:
            self.gate.run(lambda: self.tier.put(key, payload))
            return True

        if self.guard("put", put) is None:
            return False
        self.counters.add("puts")
        return True

    def reject(self, key: Key, reason: str, text: str) -> None:
        """Count a payload that turned out unusable, warn, and remove it where that is done."""
        self._rejected(reason, text)
        self.guard("remove", lambda: self.gate.run(lambda: self.tier.discard(key.digest)))

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

    def _rejected(self, reason: str, text: str) -> None:
        self.counters.add_reason("rejections", reason)
        self._warn(f"rejected-{reason}", f"an entry was rejected ({reason}): {text}")

    def _warn(self, kind: str, text: str) -> None:
        self._notices.add(f"{self.name}-{kind}", f"compilation cache, {self.name} tier: {text}")


def _name_of(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return type(error).__name__ if number is None else errno.errorcode.get(number, str(number))
