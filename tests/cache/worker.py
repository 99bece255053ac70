"""Roles of the processes that the tests start beside themselves. Each prints JSON at its end."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

from fuse.cache import Key
from tests.cache.common import Maker, key_of, open_at, payload_of, until

RANK_KEYS = 16
_NOBODY = 65534


def keys() -> list[Key]:
    return [key_of(f"k{number}") for number in range(RANK_KEYS)]


def say_ready() -> None:
    print("ready", flush=True)


def start_together(directory: Path) -> None:
    """Say ``ready``, and wait until there is a file ``go`` beside the folder."""
    say_ready()
    until(directory.with_name("go").exists)


def rank(directory: Path, number: int) -> None:
    """Use every key, starting at another one than the others."""
    cache = open_at(directory, disk_seconds=600)
    start_together(directory)
    made = []
    for key in keys()[number:] + keys()[:number]:

        def make(key: Key = key) -> bytes:
            made.append(key.label)
            time.sleep(0.05)
            return payload_of(key)

        value = cache.get_or_make(key, load=bytes, make=make, dump=bytes)
        assert value == payload_of(key)
    print(json.dumps({"made": made, "stats": cache.stats()}))


def victim(directory: Path) -> None:
    """Make keys with large payloads until killed."""
    cache = open_at(directory)
    say_ready()
    for key in keys():

        def make(key: Key = key) -> bytes:
            time.sleep(0.002)
            return payload_of(key, 200_000)

        def dump(value: bytes) -> bytes:
            time.sleep(0.001)
            return value

        cache.get_or_make(key, load=bytes, make=make, dump=dump)
    cache.flush()
    time.sleep(60)


def hanger(directory: Path) -> None:
    """Take the lease of the first key and hang."""

    def make() -> bytes:
        say_ready()
        time.sleep(3600)
        return b""

    open_at(directory).get_or_make(keys()[0], load=bytes, make=make, dump=bytes)


def writer(directory: Path, number: int, max_bytes: int) -> None:
    """Write many entries of many sizes under a bound."""
    cache = open_at(directory, disk_bytes=max_bytes, disk_seconds=600, exit_seconds=60)
    start_together(directory)
    for step in range(60):
        key = key_of(f"w{number}-{step}")
        cache.put(key, payload_of(key, 500 + 997 * (step % 7)), bytes)
    cache.flush()
    print(json.dumps(cache.stats()))


def full_disk(directory: Path) -> None:
    """Use a cache in a process that may not write files above 2000 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    use_twice(directory)


def other_user(directory: Path) -> None:
    """Use a cache, without being root, in a folder that may not be written."""
    if os.geteuid() == 0:
        os.seteuid(_NOBODY)
    use_twice(directory)


def use_twice(directory: Path) -> None:
    maker = Maker(100_000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            cache = open_at(directory)
            for key in keys()[:3]:
                maker(cache, key)
            cache.flush()
            cache.close()
    texts = [str(warning.message) for warning in caught]
    left = [path.name for path in directory.glob("entries/*")] if directory.exists() else []
    print(json.dumps({"made": maker.made, "stats": cache.stats(), "texts": texts, "left": left}))


def exiting(directory: Path) -> None:
    """Put an entry and leave at once: the exit has to flush."""
    key = keys()[0]

    def dump(value: bytes) -> bytes:
        time.sleep(0.2)
        return value

    open_at(directory).put(key, payload_of(key), dump)


def complaining(directory: Path) -> None:
    """Leave with an entry that cannot be written, where every warning is an error."""
    warnings.simplefilter("error")
    open_at(directory).put(keys()[0], b"", lambda _: bytes(1 << 62))


def forked(directory: Path) -> None:
    """Fork while a thread holds the locks of a cache, and let the child end as usual."""
    cache = open_at(directory)
    cache.put(keys()[0], payload_of(keys()[0]), bytes)
    assert cache.flush()
    with cache._writer._queues["disk"]._changed:
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # ends a child that waits for ever
            sys.exit(0)
        _, status = os.waitpid(child, 0)
    print(json.dumps({"status": status}))


def forked_reader(directory: Path) -> None:
    """Fork with idle threads of the cache, and let the child read on threads of its own."""
    cache = open_at(directory)
    cache.put(keys()[0], payload_of(keys()[0]), bytes)
    assert cache.flush() and cache.get(keys()[1], bytes) is None
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends a child that waits for ever
        os._exit(0 if cache.reread(keys()[0], bytes) == payload_of(keys()[0]) else 1)
    _, status = os.waitpid(child, 0)
    print(json.dumps({"status": status, "bypasses": cache.stats()["tiers"]["disk"]["bypasses"]}))


def main(role: str, directory: str, *arguments: str) -> None:
    roles = {
        "rank": rank,
        "victim": victim,
        "hanger": hanger,
        "writer": writer,
        "full-disk": full_disk,
        "other-user": other_user,
        "exiting": exiting,
        "complaining": complaining,
        "forked": forked,
        "forked-reader": forked_reader,
    }
    roles[role](Path(directory), *map(int, arguments))  # type: ignore[operator]


if __name__ == "__main__":
    main(*sys.argv[1:])
