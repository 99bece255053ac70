"""Work that must not delay a step: one daemon thread, a bounded queue, a bounded flush."""

from __future__ import annotations

import atexit

# For its own hook at exit: ``call_at_exit`` must register after it.
import concurrent.futures.thread  # noqa: F401
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import final

Job = Callable[[], None]


@final
class Background:
    """Runs jobs one after another, in order. The thread starts with the first job."""

    def __init__(self, name: str, max_jobs: int, failed: Callable[[Exception], None]) -> None:
        """Set up the queue; nothing runs yet.

        Args:
            name: the thread's name.
            max_jobs: how many jobs may wait.
            failed: told of what a job raises; the thread goes on.
        """
        self._name = name
        self._max_jobs = max_jobs
        self._failed = failed
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._unfinished = 0

    def submit(self, job: Job) -> bool:
        """Queue ``job``; False when the queue is full and the job was not taken."""
        if self._process != os.getpid():
            self._reset()
        with self._lock:
            if self._unfinished >= self._max_jobs:
                return False
            if self._thread is None:
                try:
                    self._thread = self._start()
                except RuntimeError:
                    # No thread starts while the interpreter shuts down.
                    return False
            self._unfinished += 1
            self._queue.put(job)
            return True

    def flush(self, seconds: float) -> bool:
        """Wait until every job is done, at most ``seconds``; say whether that was reached."""
        if self._process != os.getpid():
            return True
        deadline = time.monotonic() + seconds
        with self._idle:
            while self._unfinished:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._idle.wait(left)
        return True

    def stop(self) -> None:
        """Let the thread end after the jobs it has; a later job starts a new one."""
        with self._lock:
            if self._thread is not None and self._process == os.getpid():
                self._thread = None
                self._queue.put(None)
                self._queue = queue.SimpleQueue()

    @property
    def unfinished(self) -> int:
        """How many jobs wait or run."""
        return self._unfinished

    def _start(self) -> threading.Thread:
        thread = threading.Thread(
            target=self._run, args=(self._queue,), name=self._name, daemon=True
        )
        thread.start()
        return thread

    def _run(self, jobs: queue.SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            try:
                job()
            # A job is at a boundary: the one who gave it hears of anything, and the next
            # job must still run.
            except Exception as error:  # noqa: BLE001
                self._failed(error)
            finally:
                del job
                with self._idle:
                    self._unfinished -= 1
                    self._idle.notify_all()


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
