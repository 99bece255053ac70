"""A dictionary that does not grow for as long as a program runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, final

Name = TypeVar("Name")
Value = TypeVar("Value")
_NONE: Final[Any] = object()


@final
class Bounded(dict[Name, Value]):
    """Of up to ``most`` entries, set one by one: a new one takes the place of the oldest.

    Safe to share by threads.
    """

    def __init__(self, most: int, entries: Iterable[tuple[Name, Value]] = ()) -> None:
        """Holds ``entries``, where there are too many until the next one is set."""
        super().__init__(entries)
        self.most: Final = most
        self._lock = threading.Lock()

    def __setitem__(self, name: Name, value: Value) -> None:
        with self._lock:
            while len(self) >= self.most and name not in self:
                del self[next(iter(self))]
            super().__setitem__(name, value)

    def memo(self, name: Name, make: Callable[[], Value]) -> Value:
        """The value of ``name``, made where there is none, perhaps by several threads at once."""
        value: Value = self.get(name, _NONE)
        if value is _NONE:
            value = self[name] = make()
        return value
