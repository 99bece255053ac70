"""The support cache: which operations a backend runs, kept from process to process.

Whether a rule computes an operation is found out by tracing the rule, one or two
milliseconds for each new signature, about half of what a warm start would otherwise spend.
The verdicts of one backend are one entry of the cache, under a key of the versions and
sources that they depend on. Losing it costs tracing the rules again.

What a rule computes the platform's compiler may refuse all the same: see ``engine.alone``. That is
a verdict too, of the call whatever numbers it carries.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import replace

from fuse.backends.base import Backend
from fuse.bounded import Bounded
from fuse.cache.key import Key
from fuse.cache.tiered import TieredCache
from fuse.engine.executables import surroundings
from fuse.trace.dynamic_scalars import places
from fuse.trace.node import Node, Trace
from fuse.trace.signature import signature

Verdict = str | None
MAX_STORED = 20_000
"""Verdicts an entry holds, about 50 bytes each: op_db, whole, has some 15,000 signatures."""
SAVE_SECONDS = 2.0
"""Least time between two writes while the program runs: bounds what they cost it."""
MOST_REFUSED = 1024
"""Calls remembered that the compiler refuses, some 300 bytes each."""
_FORMAT = "1"
_BETWEEN = " "  # operator and digest, in the name of a call that the compiler refuses
_NAME_BYTES = 20  # of SHA-256: no two signatures meet by chance


class SupportCache:
    """Remembers ``Backend.reject`` by signature. Safe to share by threads."""

    def __init__(self, backend: Backend, cache: TieredCache) -> None:
        """Read what earlier processes found out."""
        self._backend = backend
        self._cache = cache
        self._lock = threading.Lock()
        fields = {"kind": "verdicts", "verdicts": _FORMAT, **surroundings(backend)}
        self._key = Key.of(fields, label=f"verdicts of the {backend.name} backend")
        stored = cache.get(self._key, load) or {}
        self._known: Bounded[str, Verdict] = Bounded(2 * MAX_STORED, stored.items())
        refused = {name: text for name, text in stored.items() if _BETWEEN in name and text}
        self._refused: Bounded[str, str] = Bounded(MOST_REFUSED, refused.items())
        self._used: dict[str, Verdict] = {}  # up to MAX_STORED, which a next start asks first
        self._unsaved = 0
        self._saved_at = 0.0

    def reject(self, node: Node) -> str | None:
        """Why the backend cannot run ``node``, or ``None`` if it can; traced once."""
        refused = self.refusal(node)
        if refused is not None:
            return refused
        name = _digest(signature(node))
        with self._lock:
            known = name in self._known
            verdict = self._known.get(name)
        if not known:
            verdict = self._backend.reject(node)
        with self._lock:
            self._unsaved += name not in self._known
            self._known[name] = verdict
            if len(self._used) < MAX_STORED:
                self._used[name] = verdict
        return verdict

    def refusal(self, node: Node) -> str | None:
        """Why the compiler refuses ``node``, where it has been found out; nobody is asked."""
        if not self._refused:
            return None
        name = _name_of_any(node)
        with self._lock:
            return self._refused.get(name)

    def refuse(self, node: Node, reason: str) -> None:
        """Remember that the compiler refuses ``node``, and so its like of other numbers."""
        name = _name_of_any(node)
        with self._lock:
            self._refused[name] = reason
            self._unsaved += 1

    def operators_refused(self) -> set[str]:
        """Operators of which the compiler refuses some call."""
        with self._lock:
            return {name.partition(_BETWEEN)[0] for name in self._refused}

    def save(self, *, final: bool = False) -> None:
        """Store what is new, in the background; now and then, or at the ``final`` call.

        What other processes have stored since this one read it is kept; where there is
        too much, this process's own go first.
        """
        with self._lock:
            now = time.monotonic()
            if not self._unsaved or not (final or now - self._saved_at >= SAVE_SECONDS):
                return
            self._unsaved, self._saved_at = 0, now
            mine = {**self._refused, **self._used}

        def dump(_: object) -> bytes:
            others = self._cache.reread(self._key, load) or {}
            merged = mine | {name: others[name] for name in others if name not in mine}
            kept = list(merged.items())[:MAX_STORED]
            return json.dumps(dict(kept), separators=(",", ":")).encode()

        self._cache.put(self._key, mine, dump)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[: 2 * _NAME_BYTES]


def _name_of_any(node: Node) -> str:
    """The name of ``node`` without its numbers, and without which of its operands are one."""
    operands = tuple(replace(one, value=at) for at, one in enumerate(node.operands))
    plain = replace(node, operands=operands, dynamic=())
    return (
        f"{node.target}{_BETWEEN}{_digest(signature(Trace.of([(plain, places(node))]).nodes[0]))}"
    )


def load(data: bytes) -> dict[str, Verdict]:
    """Stored verdicts; raises ``ValueError`` for bytes that are none."""
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("stored verdicts are no table")
    for name, verdict in found.items():
        if not (verdict is None or isinstance(verdict, str)):
            raise ValueError(f"the stored verdict {name} is {verdict!r}")
    return found
