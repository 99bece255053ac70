"""A bounded pool of threads for the compiler, which do first what saves most.

They are daemons, as a compiler cannot be interrupted: what waits is dropped when the
process ends, and what runs is waited for, with a bound. What waits and is wanted by nobody any
more is dropped as well: a plan that has been forgotten leaves nothing to be compiled.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar, final

from fuse.cache.background import call_at_exit

Result = TypeVar("Result")

EXIT_SECONDS = 0.5
"""The longest wait at exit for chunks in the compiler; what takes longer ends with the process."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@final
class Job(Future[Result]):
    """A future that carries its work, so that both go where nobody holds the future."""

    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__()
        self._work = [work]

    def run(self) -> None:
        """Do the work, unless it has begun, and let go of it: what it needs may be large."""
        try:
            work = self._work.pop()  # of two threads one gets it
        except IndexError:
            return
        if not self.set_running_or_notify_cancel():
            return
        try:
            result = work()
        # Whatever it is belongs to the one who reads the future.
        except BaseException as error:  # noqa: BLE001
            self.set_exception(error)
        else:
            self.set_result(result)


def finish(job: Future[Result]) -> None:
    """Wait for it; what no thread has begun is done by this one, before all that is queued."""
    if isinstance(job, Job):
        job.run()
    wait([job])


class Pool(Generic[Result]):
    """Runs jobs on up to ``threads`` daemon threads, which start when they are needed."""

    def __init__(self, threads: int, interrupt: Callable[[], None] | None = None) -> None:
        """Bounded by ``threads``; nothing runs yet.

        ``interrupt`` ends jobs that still run when ``stop`` has waited for them.
        """
        self._threads = max(1, threads)
        self._interrupt = interrupt
        self._lock = threading.Lock()
        # Most weight first; of equal ones the first that came.
        self._waiting: list[tuple[float, int, weakref.ref[Job[Result]]]] = []
        self._order = itertools.count()
        self._running = 0
        self._active = 0
        self._workers: list[threading.Thread] = []
        self._ended = False
        self._process = os.getpid()
        call_at_exit(self._at_exit)

    def submit(self, job: Callable[[], Result], weight: float = 0.0) -> Future[Result]:
        """Queue ``job`` before those of less weight; after ``stop`` it runs in the caller's thread.

        It is not run where the future dies before its turn.
        """
        queued = Job(job)
        with self._lock:
            ended = self._ended
            if not ended:
                entry = (-weight, next(self._order), weakref.ref(queued))
                heapq.heappush(self._waiting, entry)
                if self._active < self._threads:
                    self._start()
        if ended:
            queued.run()
        return queued

    def pending(self) -> int:
        """Jobs that wait or run."""
        with self._lock:
            return sum(queued() is not None for *_, queued in self._waiting) + self._running

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
        for *_, queued in dropped:
            job = queued()
            if job is not None:
                job.cancel()
        _join(workers, deadline)
        if self._interrupt is not None:
            self._interrupt()
            _join(workers, deadline + seconds)
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
                job = heapq.heappop(self._waiting)[-1]()
                if job is None:
                    continue
                self._running += 1
            job.run()
            del job
            with self._lock:
                self._running -= 1


def _join(threads: list[threading.Thread], deadline: float) -> None:
    """Joined, not only done: a thread that Python finds running at its end brings it down."""
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
