"""Loading ahead: nothing depends on it, and nothing is loaded twice or counted early."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from fuse.cache import CacheWarning
from fuse.cache.record import read_record
from tests.cache.common import Maker, closed, filled, key_of, open_at, payload_of, tier, until

KEYS = [key_of(f"k{number}") for number in range(4)]


class Loader:
    """Loads payloads as themselves; ``gate`` holds it up, ``loaded`` counts."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.loaded: list[tuple[bytes, str]] = []

    def __call__(self, data: bytes) -> bytes:
        self.begun.set()
        assert self.gate.wait(20)
        self.loaded.append((data, threading.current_thread().name))
        return data


def digests() -> list[str]:
    return [key.digest for key in KEYS]


def test_a_lookup_takes_what_is_ready(tmp_path: Path) -> None:
    filled(tmp_path / "cache", *KEYS)
    cache, load = open_at(tmp_path / "cache"), Loader()
    load.gate.set()
    cache.preload(digests(), load)
    deadline = time.monotonic() + 20
    while len(load.loaded) < len(KEYS) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert tier(cache, "disk")["hits"] == tier(cache, "memory")["entries"] == 0
    assert cache.get(KEYS[1], load) == payload_of(KEYS[1])
    assert len(load.loaded) == len(KEYS)
    assert {name for _, name in load.loaded} == {"fuse-cache-preload"}
    assert cache.origin(KEYS[1]) == "disk"
    assert tier(cache, "disk")["hits"] == tier(cache, "memory")["entries"] == 1
    closed(cache)


def test_a_lookup_waits_for_what_is_loading_and_loads_the_rest_itself(tmp_path: Path) -> None:
    filled(tmp_path / "cache", *KEYS)
    cache, load = open_at(tmp_path / "cache"), Loader()
    cache.preload(digests(), load)
    assert load.begun.wait(20)  # the first one is held up in the middle of loading
    assert cache.get(KEYS[2], bytes) == payload_of(KEYS[2])
    threading.Timer(0.05, load.gate.set).start()
    assert cache.get(KEYS[0], bytes) == payload_of(KEYS[0])
    closed(cache)
    assert [data for data, _ in load.loaded].count(payload_of(KEYS[0])) == 1
    assert payload_of(KEYS[2]) not in [data for data, _ in load.loaded]


def test_what_is_preloaded_and_used_is_recorded(tmp_path: Path) -> None:
    filled(tmp_path / "cache", *KEYS)
    cache = open_at(tmp_path / "cache", record=tmp_path / "used")
    cache.preload(digests(), bytes)
    Maker()(cache, KEYS[0])
    closed(cache)
    assert read_record(tmp_path / "used") == [KEYS[0].digest]


def test_what_is_missing_or_damaged_is_left_out(tmp_path: Path) -> None:
    filled(tmp_path / "cache", KEYS[0])
    (path,) = (tmp_path / "cache" / "entries").glob("*.fuse")
    path.write_bytes(path.read_bytes()[:-1])
    cache, maker = open_at(tmp_path / "cache"), Maker()
    cache.preload(digests(), bytes)
    with pytest.warns(CacheWarning, match="truncated"):
        maker(cache, KEYS[0])
        closed(cache)
    assert maker.made == ["k0"]
    assert tier(cache, "disk")["rejections"] == {"truncated": 1}


def test_bytes_that_the_loader_refuses_are_rejected(tmp_path: Path) -> None:
    def refuse(data: bytes) -> bytes:
        raise ValueError("not mine")

    filled(tmp_path / "cache", KEYS[0])
    cache, maker = open_at(tmp_path / "cache"), Maker()
    cache.preload(digests(), refuse)
    deadline = time.monotonic() + 20
    while not tier(cache, "disk")["rejections"] and time.monotonic() < deadline:
        time.sleep(0.001)
    with pytest.warns(CacheWarning, match="not mine"):
        maker(cache, KEYS[0])
    assert tier(cache, "disk")["rejections"] == {"load": 1}
    assert maker.made == ["k0"]
    closed(cache)


def test_closing_stops_the_loading(tmp_path: Path) -> None:
    filled(tmp_path / "cache", *KEYS)
    cache, load = open_at(tmp_path / "cache"), Loader()
    cache.preload(digests(), load)
    assert load.begun.wait(20)
    preloads = cache._preloads
    assert preloads is not None and preloads._loads

    def go_on_once_stopped() -> None:
        until(lambda: not preloads._loads, 10)
        load.gate.set()

    threading.Thread(target=go_on_once_stopped, daemon=True).start()
    closed(cache)
    assert len(load.loaded) == 1
