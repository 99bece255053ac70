"""The queue of running executables, as several threads use it; and arrays that others take over."""

from __future__ import annotations

import sys
import threading
from typing import Any

import jax
import numpy as np

from fuse.backends.xla.backend import create
from fuse.engine.run_ahead import LONGEST, RunAhead

SECONDS = 60


def test_all_threads_wait_for_what_one_waits_for():
    """A thread that finds another waiting must not be told that everything is computed."""
    entered, computed = threading.Barrier(3), threading.Event()

    def wait(tokens: list[Any]) -> None:
        entered.wait(SECONDS)
        assert computed.wait(SECONDS)

    flight = RunAhead(1 << 30, wait, lambda tokens: computed.is_set())
    flight.add("token", 8)
    returned: list[bool] = []

    def land() -> None:
        flight.land_all()
        returned.append(computed.is_set())

    threads = [threading.Thread(target=land) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(SECONDS)  # both wait for the one token
    assert not flight.land_within(0.0)
    computed.set()
    for thread in threads:
        thread.join(SECONDS)
    assert returned == [True, True]
    assert flight.land_within(0.0)


def test_what_is_handed_on_meanwhile_is_not_waited_for():
    """A program whose other threads go on is synchronised all the same."""
    waited: list[int] = []

    def wait(tokens: list[int]) -> None:
        waited.extend(tokens)
        assert len(waited) < 100
        run_ahead.add(tokens[0] + 10, 1)  # as another thread does at the time

    run_ahead = RunAhead(1 << 30, wait, lambda tokens: True)
    for token in range(3):
        run_ahead.add(token, 1)
    run_ahead.land_all()
    assert waited == [0, 1, 2]


def test_many_threads_add_and_land():
    """Nothing is waited for twice but by threads at the same time, and nothing is forgotten."""
    waited: set[int] = set()
    flight = RunAhead(LONGEST, lambda tokens: waited.update(tokens), lambda tokens: True)
    errors: list[Exception] = []

    def work(first: int) -> None:
        try:
            for token in range(first, first + 2_000):
                flight.add(token, 1)
                flight.land_within(0.0) if token % 3 else flight.land_all()
        except Exception as error:  # noqa: BLE001  (asserted below)
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(at * 2_000,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    finally:
        sys.setswitchinterval(before)
    flight.land_all()
    assert not errors and waited == set(range(8_000))


def test_an_array_that_an_executable_took_over_is_waited_for_no_more():
    backend = create()
    backend.start()
    take = jax.jit(lambda x: x + 1, donate_argnums=0)

    class Racing:
        """An array that another thread donates just after it was asked whether it still is one."""

        def __init__(self) -> None:
            self.array = backend.put(np.ones(4, np.float32), 0)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.array, name)

        def is_deleted(self) -> bool:
            before = bool(self.array.is_deleted())
            if not before:
                take(self.array)
            return before

    backend.wait([Racing()])
    assert backend.done([Racing()])
    gone = Racing()
    take(gone.array)
    backend.wait([gone])
    assert backend.done([gone])
