"""Verdicts on operations and recalled executables: what a start knows from earlier ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fuse.cache import CacheSettings, CacheWarning, TieredCache, open_cache
from fuse.engine import support_cache, warm_start
from fuse.engine.executables import Executables, key_of
from fuse.engine.support_cache import SupportCache
from fuse.engine.warm_start import WarmStart
from tests.engine.fakes import FakeBackend, chunk, node

NODES = [node(number=float(number)) for number in range(5)]


def opened(directory: Path) -> TieredCache:
    return open_cache(CacheSettings(directory=directory, exit_seconds=60.0))


def test_a_verdict_is_found_out_once_for_all_processes(tmp_path: Path) -> None:
    backend, cache = FakeBackend(refused=frozenset({"sub.Scalar"})), opened(tmp_path / "cache")
    first = SupportCache(backend, cache)
    for _ in range(2):
        assert [first.reject(one) for one in NODES] == [None] * 5
        assert first.reject(node("sub.Scalar")) == "no sub.Scalar here"
    assert len(backend.rejected) == 6
    first.save(final=True)
    cache.close()
    second = SupportCache(backend, opened(tmp_path / "cache"))
    assert [second.reject(one) for one in NODES] == [None] * 5
    assert second.reject(node("sub.Scalar")) == "no sub.Scalar here"
    assert len(backend.rejected) == 6


def test_verdicts_of_another_version_are_not_believed(tmp_path: Path) -> None:
    backend, cache = FakeBackend(), opened(tmp_path / "cache")
    first = SupportCache(backend, cache)
    first.reject(NODES[0])
    first.save(final=True)
    cache.close()
    backend.version = "2"
    SupportCache(backend, opened(tmp_path / "cache")).reject(NODES[0])
    assert len(backend.rejected) == 2


def test_what_two_processes_found_out_is_joined(tmp_path: Path) -> None:
    backend = FakeBackend()
    caches = [opened(tmp_path / "cache") for _ in range(2)]
    both = [SupportCache(backend, cache) for cache in caches]
    for number, one in enumerate(both):
        one.reject(NODES[number])
        one.save(final=True)
        caches[number].close()
    asked = len(backend.rejected)
    third = SupportCache(backend, opened(tmp_path / "cache"))
    assert third.reject(NODES[0]) is third.reject(NODES[1]) is None
    assert len(backend.rejected) == asked == 2


def test_the_table_of_verdicts_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_cache, "MAX_STORED", 3)
    backend, cache = FakeBackend(), opened(tmp_path / "cache")
    first = SupportCache(backend, cache)
    for one in NODES:
        first.reject(one)
    first.save(final=True)
    cache.close()
    second = SupportCache(backend, opened(tmp_path / "cache"))
    for one in NODES:
        second.reject(one)
    assert len(backend.rejected) == 5 + 2


def test_while_the_program_runs_verdicts_are_written_now_and_then(tmp_path: Path) -> None:
    cache = opened(tmp_path / "cache")
    first = SupportCache(FakeBackend(), cache)
    for one in NODES:
        first.reject(one)
        first.save()
    cache.flush()
    assert cache.stats()["tiers"]["disk"]["puts"] == 1
    first.save(final=True)
    cache.flush()
    assert cache.stats()["tiers"]["disk"]["puts"] == 2
    first.save(final=True)  # nothing new
    cache.close()
    assert cache.stats()["tiers"]["disk"]["puts"] == 2


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"a": 1}', b'{"a": ["b"]}', b"\xff"])
def test_bytes_that_are_no_verdicts_are_rejected_and_replaced(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        support_cache.load(data)
    backend, cache = FakeBackend(), opened(tmp_path / "cache")
    first = SupportCache(backend, cache)
    cache.put(first._key, {}, lambda _: data)
    cache.close()
    cache = opened(tmp_path / "cache")
    with pytest.warns(CacheWarning, match="rejected"):
        second = SupportCache(backend, cache)
    assert cache.stats()["tiers"]["disk"]["rejections"] == {"load": 1}
    assert second.reject(NODES[0]) is None
    second.save(final=True)
    cache.close()
    third = SupportCache(backend, opened(tmp_path / "cache"))
    assert third.reject(NODES[0]) is None
    assert len(backend.rejected) == 1


def used(backend: FakeBackend) -> list[str]:
    """One start of a program with five executables; where each came from."""
    executables = Executables()
    recalled = WarmStart(backend, executables)
    programs = [chunk(one) for one in NODES]
    origins = [executables.find(backend, one, key_of(backend, one)).origin for one in programs]
    recalled.save()
    assert executables.cache.flush(60)
    executables.cache.close()
    return origins


def test_a_command_recalls_what_it_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FUSE_CACHE", raising=False)
    monkeypatch.setattr(sys, "argv", ["/work/train.py", "--steps", "3"])
    asked: list[list[str]] = []
    preload = TieredCache.preload

    def watch(cache: TieredCache, digests: list[str], load: object) -> None:
        asked.append(digests)
        preload(cache, digests, load)  # type: ignore[arg-type]

    monkeypatch.setattr(TieredCache, "preload", watch)
    backend = FakeBackend()
    assert used(backend) == ["compiled"] * 5
    assert used(backend) == ["disk"] * 5
    wanted = [key_of(backend, chunk(one)).digest for one in NODES]
    assert asked == [[], wanted]
    monkeypatch.setattr(sys, "argv", ["/work/train.py", "--steps", "4"])
    used(backend)
    assert asked[-1] == []
    monkeypatch.setattr(sys, "argv", ["-c"])
    used(backend)
    assert len(asked) == 3


@pytest.mark.parametrize("found", [{}, ["x"], [1], ["0" * 64] * (warm_start.MAX_RECALLED + 1)])
def test_bytes_that_are_no_list_of_digests_are_refused(found: object) -> None:
    with pytest.raises(ValueError):
        warm_start.load(json.dumps(found).encode())
    assert warm_start.load(json.dumps(["0" * 64]).encode()) == ["0" * 64]


@pytest.mark.refused
def test_what_the_compiler_refuses_is_known_to_the_next_process(tmp_path: Path) -> None:
    backend, cache = FakeBackend(), opened(tmp_path / "cache")
    first = SupportCache(backend, cache)
    first.refuse(node(number=1.0), "none here")
    assert first.reject(node(number=2.0)) == "none here"  # whatever its number is
    assert first.reject(node("sub.Scalar")) is None
    first.save(final=True)
    cache.close()
    second = SupportCache(backend, opened(tmp_path / "cache"))
    assert second.operators_refused() == {node().target}
    assert second.reject(node(number=3.0)) == second.refusal(node()) == "none here"
    assert second.refusal(node("sub.Scalar")) is None
