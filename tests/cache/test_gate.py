from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fuse.cache import CacheTrustError, EntryRejectedError, TierBypassError
from fuse.cache.background import Background
from fuse.cache.gate import Gate
from tests.cache.common import awake_seconds


def fail(error: Exception) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that gates know, in seconds; it stands still."""
    now = [1000.0]
    monkeypatch.setattr("fuse.cache.gate.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_results_and_errors_pass_through() -> None:
    gate = Gate("disk", 20.0, 60.0)
    assert gate.run(lambda: 3) == 3
    with pytest.raises(TimeoutError, match="the action's own"):
        gate.run(fail(TimeoutError("the action's own")))
    assert gate.run(lambda: 4) == 4


def test_a_time_out_shuts_the_gate_for_a_while(clock: list[float]) -> None:
    gate, release = Gate("disk", 0.05, 60.0), threading.Event()
    started = awake_seconds()
    with pytest.raises(TierBypassError, match=r"did not answer within 0.05 s") as caught:
        gate.run(lambda: release.wait(20))
    assert caught.value.reason == "timeout" and caught.value.warn
    for clock[0] in (1000.0, 1059.0):
        with pytest.raises(TierBypassError) as caught:
            gate.run(lambda: 1)
        assert caught.value.reason == "paused" and not caught.value.warn
    assert awake_seconds() - started < 5
    clock[0] = 1061.0
    assert gate.wait(gate.start(lambda: 2), 20) == 2
    release.set()


def test_three_errors_in_a_row_shut_the_gate_and_answers_do_not(clock: list[float]) -> None:
    gate = Gate("counted", 20.0, 60.0)
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
            gate.run(fail(error))
        # The count may lag behind the result by a moment, which its thread still runs for.
        for thread in threading.enumerate():
            if thread.name == "fuse-cache-counted":
                thread.join(20)
    with pytest.raises(TierBypassError, match="not asked for another 60 s"):
        gate.run(lambda: 1)


def test_hanging_operations_are_bounded_in_number() -> None:
    gate, release = Gate("shared", 60.0, 60.0), threading.Event()
    futures = [gate.start(lambda: release.wait(20)) for _ in range(64)]
    with pytest.raises(TierBypassError) as caught:
        gate.start(lambda: True)
    assert caught.value.reason == "busy"
    release.set()
    assert all(gate.wait(future) for future in futures)


def test_background_runs_in_order_and_survives_errors() -> None:
    errors: list[Exception] = []
    done: list[int] = []
    background = Background("test", 10, errors.append)
    assert background.submit(lambda: done.append(1))
    assert background.submit(fail(ValueError("job")))
    assert background.submit(lambda: done.append(2))
    assert background.flush(10)
    assert done == [1, 2] and [str(error) for error in errors] == ["job"]
    background.stop()
    assert background.submit(lambda: done.append(3))
    assert background.flush(10)
    assert done == [1, 2, 3]
    background.stop()


def test_background_is_bounded_in_jobs_and_in_time() -> None:
    release = threading.Event()
    background = Background("test", 2, lambda error: None)
    assert background.submit(lambda: None if release.wait(20) else None)
    assert background.submit(lambda: None)
    assert not background.submit(lambda: None)
    started = awake_seconds()
    assert not background.flush(0.05)
    assert awake_seconds() - started < 5
    assert background.unfinished == 2
    release.set()
    assert background.flush(10)
    background.stop()
