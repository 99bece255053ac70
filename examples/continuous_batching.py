"""Continuous batching: texts join and leave a running batch between two steps.

One thread computes, all others only ask and wait. A text that has its last character frees its
slot at once, and the next one takes it while the others go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from fuse.examples.static_cache import BUCKETS, StaticCache


class FullError(RuntimeError):
    """As many texts wait as may; ask again later."""


@dataclass
class _Text:
    prompt: Sequence[int]
    length: int
    answer: Future[list[int]] = field(default_factory=Future)
    written: list[int] = field(default_factory=list)


class Batcher:
    """Writes on any number of texts, ``cache.slots`` at a time; ``with`` starts and ends its
    thread."""

    def __init__(self, cache: StaticCache, most_waiting: int = 1000) -> None:
        """``cache`` is this object's alone from now on."""
        self._cache = cache
        self._most_waiting = most_waiting
        self._waiting: deque[_Text] = deque()
        self._running: dict[int, _Text] = {}
        self._free = [*range(cache.slots)]
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)

    def submit(self, prompt: Sequence[int], length: int) -> Future[list[int]]:
        """Ask for the ``length`` characters after ``prompt``.

        Raises ``ValueError`` for a prompt or length that the cache has no place for, ``FullError``
        when ``most_waiting`` texts wait, ``RuntimeError`` after the end.
        """
        if not 1 <= len(prompt) <= BUCKETS[-1]:
            raise ValueError(f"a prompt has 1 to {BUCKETS[-1]} characters, not {len(prompt)}")
        if not 1 <= length <= self._cache.context - len(prompt):
            most = self._cache.context - len(prompt)
            raise ValueError(f"after this prompt 1 to {most} characters fit, not {length}")
        text = _Text(prompt, length)
        with self._changed:
            if self._ended:
                raise RuntimeError("the batcher has ended")
            if len(self._waiting) >= self._most_waiting:
                raise FullError(f"{len(self._waiting)} texts wait already")
            self._waiting.append(text)
            self._changed.notify()
        return text.answer

    def __enter__(self) -> Batcher:
        """Start the thread that computes."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread after its present step; what is not finished is cancelled or fails."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        error = RuntimeError("the batcher has ended")
        try:
            while self._has_work():
                self._admit()
                self._step()
        except BaseException as failure:
            error = RuntimeError(f"the batcher has failed: {failure}")
            raise
        finally:
            with self._changed:
                self._ended = True
                left = [*self._running.values(), *self._waiting]
            for text in left:
                if not text.answer.done():
                    text.answer.set_exception(error)

    def _has_work(self) -> bool:
        """Wait until there is a text or the end has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._running or self._waiting)
            return not self._ended

    def _admit(self) -> None:
        """Give free slots to those who wait, first come first served."""
        while self._free:
            with self._changed:
                if not self._waiting:
                    return
                text = self._waiting.popleft()
            # False: who asked has given up.
            if text.answer.set_running_or_notify_cancel():
                slot = self._free.pop()
                self._running[slot] = text
                self._written(slot, self._cache.prefill(text.prompt, slot))

    def _step(self) -> None:
        """One more character of every text that runs."""
        if self._running:
            written = self._cache.decode()
            for slot in tuple(self._running):
                self._written(slot, written[slot])

    def _written(self, slot: int, character: int) -> None:
        text = self._running[slot]
        text.written.append(character)
        if len(text.written) == text.length:
            del self._running[slot]
            self._free.append(slot)
            text.answer.set_result(text.written)
