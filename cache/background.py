"""Threads of the cache: one pool of daemon threads, and queues of jobs that run on it in order."""

from __future__ import annotations

import atexit

# For its own hook at exit: ``call_at_exit`` must register after it.
import concurrent.futures.thread  # noqa: F401
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar, final

Result = TypeVar("Result")
Job = Callable[[], object]


@final
class WorkerPool:
    """Daemon threads that run actions, as many as run at once. Safe to share by threads.

    A thread that hangs in a dead mount can be neither stopped nor waited for: it is never
    idle again, so nothing else is given to it, and the interpreter ends without it.
    """

    def __init__(self) -> None:
        """Start with no thread."""
        self.forget()

    def forget(self) -> None:
        """Have no thread, as in a forked child, which has none of its parent's."""
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)

    def run(self, action: Callable[[], Result], name: str) -> Future[Result]:
        """Run ``action`` on an idle thread, or a new one, that has this name; return its future.

        Raises:
            RuntimeError: the interpreter is shutting down and starts no threads.
        """
        if sys.is_finalizing():
            raise RuntimeError("no thread runs while the interpreter shuts down")
        future: Future[Result] = Future()
        job = partial(self._settle, future, action, name)
        if self._idle.acquire(blocking=False):
            self._jobs.put(job)
        else:
            threading.Thread(target=self._work, args=(job,), name=name, daemon=True).start()
        return future

    def _work(self, job: Job) -> None:
        while True:
            job()
            del job
            job = self._jobs.get()

    def _settle(self, future: Future[Result], action: Callable[[], Result], name: str) -> None:
        threading.current_thread().name = name
        try:
            result = action()
        # Whatever it is belongs to the one who reads the future.
        except BaseException as error:  # noqa: BLE001
            tell = partial(future.set_exception, error)
        else:
            tell = partial(future.set_result, result)
        # First, so that whoever waits for the result finds this thread idle.
        self._idle.release()
        tell()


WORKERS = WorkerPool()
"""The threads of every cache of this process."""

os.register_at_fork(after_in_child=WORKERS.forget)


@final
class JobQueue:
    """Runs jobs one after another, in order, on a thread of ``WORKERS``; bounded in number."""

    def __init__(self, name: str, max_jobs: int, failed: Callable[[Exception], None]) -> None:
        """Set up the queue; nothing runs yet.

        Args:
            name: of the thread while it runs these jobs.
            max_jobs: how many jobs may wait or run.
            failed: told of what a job raises; the next job runs all the same.
        """
        self._name = name
        self._max_jobs = max_jobs
        self._failed = failed
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        # The first one runs, and stays until it is done.
        self._jobs: deque[Job] = deque()
        self._process = os.getpid()

    def submit(self, job: Job) -> bool:
        """Queue ``job``; False when the queue is full and the job was not taken."""
        if self._process != os.getpid():
            self._reset()
        with self._changed:
            if len(self._jobs) >= self._max_jobs:
                return False
            self._jobs.append(job)
            if len(self._jobs) == 1:
                try:
                    WORKERS.run(self._drain, self._name)
                except RuntimeError:
                    # No thread starts while the interpreter shuts down.
                    self._jobs.clear()
                    return False
            return True

    def flush(self, seconds: float) -> bool:
        """Wait until every job is done, at most ``seconds``; say whether that was reached."""
        if self._process != os.getpid():
            return True
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs, seconds)

    @property
    def unfinished(self) -> int:
        """How many jobs wait or run."""
        return len(self._jobs)

    def _drain(self) -> None:
        while True:
            try:
                self._jobs[0]()
            # A job is at a boundary: the one who gave it hears of anything, and the next
            # job must still run.
            except Exception as error:  # noqa: BLE001
                self._failed(error)
            with self._changed:
                self._jobs.popleft()
                self._changed.notify_all()
                if not self._jobs:
                    return


def call_at_exit(action: Callable[[], None]) -> None:
    """Call ``action`` when the interpreter exits, while threads can still be started.

    ``atexit`` comes too late for remote stores: their drivers look up hosts on a thread
    pool, and pools are closed before it. The hook of ``threading`` that those pools use
    themselves runs the newest registration first; it is private, so ``atexit`` serves
    where an interpreter does not have it.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(action)
    except RuntimeError:  # those hooks run already
        atexit.register(action)
