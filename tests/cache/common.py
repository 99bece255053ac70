"""What the tests of the cache share."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuse.cache import CacheSettings, Key, TieredCache, open_cache

ROOT = Path(__file__).resolve().parents[2]
SECRET = b"the key of the tests, long enough"


_TICK, _LONGEST_TICK = 0.01, 0.05
_ticks: list[float] = []


def awake_seconds() -> float:
    """Seconds that this process has been able to run since the first call.

    A thread counts ticks. While the process is stopped, or gets no processor, nothing is
    counted, so that a bound on a wait is a bound on what the wait itself took.
    """
    if not _ticks:
        _ticks.append(0.0)
        threading.Thread(target=_tick, daemon=True).start()
    return _ticks[0]


def _tick() -> None:
    last = time.monotonic()
    while True:
        time.sleep(_TICK)
        now = time.monotonic()
        _ticks[0] += min(now - last, _LONGEST_TICK)
        last = now


def until(happens: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for what another thread or process does; a failure if it does not in so many seconds."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def key_of(name: str, **fields: str) -> Key:
    return Key.of({"program": f"program {name}\nreturn %0", "backend": "xla"} | fields, name)


def payload_of(key: Key, size: int = 1000) -> bytes:
    """The one right payload of a key: a wrong one cannot look right."""
    return (hashlib.sha512(key.digest.encode()).digest() * (size // 64 + 1))[:size]


def open_at(directory: Path | None, **settings: Any) -> TieredCache:
    settings.setdefault("exit_seconds", 20.0)
    return open_cache(CacheSettings(directory=directory, **settings))


def spoil(path: Path) -> None:
    """Change the last byte of an entry: a fixed one would be there already at times."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


class Maker:
    """Makes payloads as their own objects, and counts."""

    def __init__(self, size: int = 1000) -> None:
        self.made: list[str] = []
        self.size = size

    def __call__(self, cache: TieredCache, key: Key, **options: Any) -> bytes:
        def make() -> bytes:
            self.made.append(key.label)
            return payload_of(key, self.size)

        value = cache.get_or_make(key, load=bytes, make=make, dump=bytes, **options)
        assert value == payload_of(key, self.size)
        return value


def tier(cache: TieredCache, name: str) -> dict[str, Any]:
    counts: dict[str, Any] = cache.stats()["tiers"][name]
    return counts


def closed(cache: TieredCache) -> TieredCache:
    assert cache.flush()
    cache.close()
    return cache


def filled(at: Path, *keys: Key, **settings: Any) -> None:
    cache = open_at(at, **settings)
    for key in keys or (key_of("one"),):
        Maker()(cache, key)
    closed(cache)


def start_worker(
    role: str, *arguments: object, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a process of ``tests.cache.worker``; it says ``ready`` before its work.

    Its output is not buffered here: ``communicate`` would miss what a buffer has taken.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cache.worker", role, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=stderr,
        bufsize=0,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"},
    )


def wait_ready(worker: subprocess.Popen[bytes]) -> None:
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
