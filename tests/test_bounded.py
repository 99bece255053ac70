"""A dictionary of a bounded number of entries."""

from __future__ import annotations

import threading

from fuse.bounded import Bounded


def test_a_new_entry_takes_the_place_of_the_oldest() -> None:
    table: Bounded[str, int] = Bounded(2)
    for number, name in enumerate("abac"):
        table[name] = number
    assert list(table.items()) == [("b", 1), ("c", 3)]


def test_too_many_to_begin_with_go_with_the_next_one() -> None:
    table = Bounded(2, [(number, number) for number in range(5)])
    assert len(table) == 5
    table[5] = 5
    assert list(table) == [4, 5]


def test_what_is_there_is_not_made_again() -> None:
    made: list[str] = []
    table: Bounded[str, None] = Bounded(2)
    for name in ("a", "a", "b", "c", "a"):
        table.memo(name, lambda name=name: made.append(name))  # type: ignore[misc]
    assert made == ["a", "b", "c", "a"]


def test_several_threads_fill_it() -> None:
    table: Bounded[int, int] = Bounded(8)

    def fill(start: int) -> None:
        for number in range(start, start + 20_000):
            assert table.memo(number % 50, lambda number=number: number) % 50 == number % 50  # type: ignore[misc]

    threads = [threading.Thread(target=fill, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(table) == 8
