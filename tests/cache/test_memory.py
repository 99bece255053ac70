from __future__ import annotations

from contextlib import closing
from pathlib import Path

from fuse.cache import CacheSettings, open_cache
from fuse.cache.memory import Live, MemoryTier, weight
from tests.cache.common import key_of

A, B, C = key_of("a"), key_of("b"), key_of("c")


def test_the_least_recently_used_goes_first_by_entries() -> None:
    memory = MemoryTier(2, 100)
    memory.put(Live(A, "a", 1))
    memory.put(Live(B, "b", 1))
    assert memory.get(A.digest) == Live(A, "a", 1)
    memory.put(Live(C, "c", 1))
    assert memory.get(B.digest) is None
    assert memory.get(A.digest) and memory.get(C.digest)
    assert memory.evictions == 1 and memory.usage() == (2, 2)


def test_the_least_recently_used_goes_first_by_bytes() -> None:
    memory = MemoryTier(10, 100)
    memory.put(Live(A, "a", 60))
    memory.put(Live(B, "b", 30))
    memory.put(Live(C, "c", 30))
    assert memory.get(A.digest) is None
    assert memory.usage() == (2, 60)


def test_the_least_recently_used_half_goes() -> None:
    memory = MemoryTier(10, 100)
    for key in (A, B, C):
        memory.put(Live(key, "x", 1))
    memory.get(A.digest)
    memory.halve()
    assert set(memory.stored_keys()) == {A, C} and memory.evictions == 1
    memory.halve()
    assert set(memory.stored_keys()) == {A}
    memory.halve()
    assert memory.usage() == (1, 1)


def test_looking_at_the_keys_is_no_use() -> None:
    memory = MemoryTier(2, 100)
    memory.put(Live(A, "a", 1))
    memory.put(Live(B, "b", 1))
    memory.get(A.digest)
    assert set(memory.stored_keys()) == {A, B}
    memory.put(Live(C, "c", 1))
    assert set(memory.stored_keys()) == {A, C}


def test_an_object_above_the_bound_is_not_kept_and_replaces_nothing() -> None:
    memory = MemoryTier(2, 100)
    memory.put(Live(A, "old", 1))
    memory.put(Live(B, "b", 1))
    assert not memory.put(Live(A, "new", 101))
    assert memory.counters.snapshot()["bypasses"] == {"too-large": 1}
    assert memory.get(A.digest) is None and memory.get(B.digest) is not None


def test_a_size_learned_later_counts() -> None:
    memory = MemoryTier(10, 100)
    memory.put(Live(A, "a", 1))
    memory.put(Live(B, "b", 1))
    memory.resize(B.digest, 100)
    assert memory.usage() == (1, 100) and memory.get(A.digest) is None
    memory.resize(A.digest, 50)
    assert memory.usage() == (1, 100)
    assert memory.clear() == 1 and memory.usage() == (0, 0)


class Heavy:
    """Takes ten times what is stored of it."""

    def __init__(self, stored: int) -> None:
        self.stored = stored

    def held_bytes(self) -> int:
        return 10 * self.stored


def test_an_object_that_knows_its_memory_is_counted_with_it() -> None:
    assert weight(Heavy(3), 3) == 30
    assert weight("text", 3) == 3


def test_the_tier_counts_what_objects_take(tmp_path: Path) -> None:
    cache = open_cache(CacheSettings(directory=tmp_path, memory_bytes=100))
    with closing(cache):
        for key, stored in ((A, 4), (B, 5)):
            found = cache.get_or_make(
                key,
                load=lambda data: Heavy(len(data)),
                make=lambda stored=stored: Heavy(stored),
                dump=lambda heavy: b"x" * heavy.stored,
            )
            assert found.stored == stored
        assert cache.stats()["tiers"]["memory"]["bytes"] == 90
        cache.put(C, Heavy(2), lambda heavy: b"xx")
        assert cache.stats()["tiers"]["memory"]["bytes"] == 70
