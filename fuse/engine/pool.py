"""A bounded pool of threads for the compiler.

They are daemons, as a compiler cannot be interrupted: what waits is dropped when the
process ends, and what runs is waited for, with a bound. What waits and is wanted by nobody any
more is dropped as well: a plan that has been forgotten leaves nothing to be compiled.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar, final

from fuse.cache.background import call_at_exit

Result = TypeVar("Result")

EXIT_SECONDS = 0.5
"""The longest wait at exit for chunks in the compiler; what takes longer ends with the process."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@final
class _Job(Future[Result]):
    """A future that carries its work, so that both go where nobody holds the future."""

    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__()
        self._work: Callable[[], Result] | None = work

    def run(self) -> None:
        """Do the work, and let go of it: what it needs may be large."""
        work, self._work = self._work, None
        if work is None or not self.set_running_or_notify_cancel():
            return
        try:
            result = work()
        # Whatever it is belongs to the one who reads the future.
        except BaseException as error:  # noqa: BLE001
            self.set_exception(error)
        else:
            self.set_result(result)


class Pool(Generic[Result]):
    """Runs jobs on up to ``threads`` daemon threads, which start when they are needed."""

    def __init__(self, threads: int) -> None:
        """Bounded by ``threads``; nothing runs yet."""
        self._threads = max(1, threads)
        self._lock = threading.Lock()
        self._waiting: deque[weakref.ref[_Job[Result]]] = deque()
        self._running = 0
        self._active = 0
        self._workers: list[threading.Thread] = []
        self._ended = False
        self._process = os.getpid()
        call_at_exit(self._at_exit)

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Queue ``job``; after ``stop`` it runs at once, in the caller's thread.

        It is not run where the future dies before its turn.
        """
        queued = _Job(job)
        with self._lock:
            ended = self._ended
            if not ended:
                self._waiting.append(weakref.ref(queued))
                if self._active < self._threads:
                    self._start()
        if ended:
            queued.run()
        return queued

    def pending(self) -> int:
        """Jobs that wait or run."""
        with self._lock:
            return sum(queued() is not None for queued in self._waiting) + self._running

    def is_idle(self) -> bool:
        """Whether no thread of the pool is alive."""
        return not any(worker.is_alive() for worker in self._workers)

    def stop(self, seconds: float) -> bool:
        """Drop what waits, wait for what runs; whether that ended within ``seconds``."""
        deadline = time.monotonic() + seconds
        with self._lock:
            self._ended = True
            dropped, workers = list(self._waiting), self._workers
            self._waiting.clear()
        for queued in dropped:
            job = queued()
            if job is not None:
                job.cancel()
        # Joined, not only done: a thread that Python finds running at its end brings it down.
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        return self.is_idle()

    def _start(self) -> None:
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        worker = threading.Thread(target=self._work, name="fuse-compile", daemon=True)
        worker.start()
        self._workers.append(worker)
        self._active += 1

    def _at_exit(self) -> None:
        if self._process == os.getpid():  # a forked child has the pool, and none of its threads
            self.stop(EXIT_SECONDS)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._active -= 1
                    return
                job = self._waiting.popleft()()
                if job is None:
                    continue
                self._running += 1
            job.run()
            del job
            with self._lock:
                self._running -= 1
