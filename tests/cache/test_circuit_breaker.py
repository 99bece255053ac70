from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fuse.cache import CacheTrustError, EntryRejectedError, TierBypassError
from fuse.cache.circuit_breaker import CircuitBreaker
from tests.cache.common import awake_seconds


def fail(error: Exception) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that breakers know, in seconds; it stands still."""
    now = [1000.0]
    monkeypatch.setattr(
        "fuse.cache.circuit_breaker.time", SimpleNamespace(monotonic=lambda: now[0])
    )
    return now


def test_results_and_errors_pass_through() -> None:
    breaker = CircuitBreaker("disk", 20.0, 60.0)
    assert breaker.run(lambda: 3) == 3
    with pytest.raises(TimeoutError, match="the action's own"):
        breaker.run(fail(TimeoutError("the action's own")))
    assert breaker.run(lambda: 4) == 4


def test_a_time_out_opens_the_breaker_for_a_while(clock: list[float]) -> None:
    breaker, release = CircuitBreaker("disk", 0.05, 60.0), threading.Event()
    started = awake_seconds()
    with pytest.raises(TierBypassError, match=r"did not answer within 0.05 s") as caught:
        breaker.run(lambda: release.wait(20))
    assert caught.value.reason == "timeout" and caught.value.warn
    for clock[0] in (1000.0, 1059.0):
        with pytest.raises(TierBypassError) as caught:
            breaker.run(lambda: 1)
        assert caught.value.reason == "paused" and not caught.value.warn
    assert awake_seconds() - started < 5
    clock[0] = 1061.0
    assert breaker.wait(breaker.start(lambda: 2), 20) == 2
    release.set()


def test_three_errors_in_a_row_open_the_breaker_and_answers_do_not(clock: list[float]) -> None:
    breaker = CircuitBreaker("counted", 20.0, 60.0)
    for error in (
        OSError(5, "I/O error"),
        OSError(5, "I/O error"),
        EntryRejectedError("checksum", "damaged"),
        CacheTrustError("owner", "another's"),
        TierBypassError("too-large", "large", warn=False),
        ValueError("driver"),
        ValueError("driver"),
        ValueError("driver"),
    ):
        with pytest.raises(type(error)):
            breaker.run(fail(error))
    with pytest.raises(TierBypassError, match="not asked for another 60 s"):
        breaker.run(lambda: 1)


def test_hanging_operations_are_bounded_in_number() -> None:
    breaker, release = CircuitBreaker("shared", 60.0, 60.0), threading.Event()
    futures = [breaker.start(lambda: release.wait(20)) for _ in range(64)]
    with pytest.raises(TierBypassError) as caught:
        breaker.start(lambda: True)
    assert caught.value.reason == "busy"
    release.set()
    assert all(breaker.wait(future) for future in futures)
