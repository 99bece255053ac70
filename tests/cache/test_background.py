"""The threads of the cache: a pool that reuses what is idle, and queues in order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fuse.cache.background import JobQueue, WorkerPool
from tests.cache.common import awake_seconds, filled, key_of, open_at


def test_an_idle_thread_is_used_again_and_a_hanging_one_is_not() -> None:
    pool, begun, release = WorkerPool(), threading.Event(), threading.Event()

    def hang() -> int:
        begun.set()
        release.wait(60)
        return threading.get_ident()

    first = pool.run(threading.get_ident, "first").result(20)
    assert pool.run(threading.get_ident, "second").result(20) == first
    hanging = pool.run(hang, "hanging")
    assert begun.wait(20)
    others = {pool.run(threading.get_ident, "other").result(20) for _ in range(10)}
    assert len(others) == 1 and first not in others
    release.set()
    assert hanging.result(20) == first


def test_a_thread_has_the_name_of_what_it_does_and_hands_on_what_that_raises() -> None:
    pool = WorkerPool()
    for name in ("one", "two"):
        assert pool.run(lambda: threading.current_thread().name, name).result(20) == name
    for error in (ValueError("an action's"), SystemExit(3)):

        def fail(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            pool.run(fail, "failing").result(20)
        assert caught.value is error


def test_lookups_start_no_thread_each(at: Path) -> None:
    keys = [key_of(f"k{number}") for number in range(20)]
    filled(at, *keys)
    cache = open_at(at)
    assert cache.get(keys[0], bytes)
    before = set(threading.enumerate())
    assert all(cache.get(key, bytes) for key in keys)
    assert set(threading.enumerate()) <= before


def test_a_queue_runs_in_order_and_survives_errors() -> None:
    errors: list[Exception] = []
    done: list[int] = []
    jobs = JobQueue("test", 10, errors.append)
    assert jobs.submit(lambda: done.append(1))
    assert jobs.submit(lambda: 1 // 0)
    assert jobs.submit(lambda: done.append(2))
    assert jobs.flush(10)
    assert done == [1, 2] and [type(error) for error in errors] == [ZeroDivisionError]
    assert jobs.submit(lambda: done.append(3))
    assert jobs.flush(10)
    assert done == [1, 2, 3]


def test_a_queue_is_bounded_in_jobs_and_in_time() -> None:
    release = threading.Event()
    jobs = JobQueue("test", 2, lambda error: None)
    assert jobs.submit(lambda: None if release.wait(20) else None)
    assert jobs.submit(lambda: None)
    assert not jobs.submit(lambda: None)
    started = awake_seconds()
    assert not jobs.flush(0.05)
    assert awake_seconds() - started < 5
    assert jobs.unfinished == 2
    release.set()
    assert jobs.flush(10)
