"""Runs entries in worker processes: in parallel, each with a time limit, each in isolation.

A worker that dies or hangs costs the entry it was at, which is recorded as failed with the
reason, and a fresh worker. Records are appended to a file as they come, so that a run that
is interrupted goes on where it was.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tests.coverage.record import FAILED, Outcome, Record

PROGRAM = ("-m", "tests.coverage.worker")
START_SECONDS = 300.0
ENTRIES_A_WORKER = 150
"""Entries after which a worker is replaced: what it compiled and recorded takes memory."""
ENVIRONMENT = {
    "FUSE_HOST_FALLBACK": "silent",  # counted, not printed
    # Everything compiles: nothing runs on the CPU's kernels instead.
    "FUSE_TIER": "compiled",
    "OMP_NUM_THREADS": "1",
}


class Worker:
    """One worker process and the entry it is at."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.entries = 0
        self._log = log
        self._stderr: IO[bytes] = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, *PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=os.environ | ENVIRONMENT,
        )
        self._pending = b""
        if self._line(START_SECONDS) != "ready":
            self.close()
            raise RuntimeError(f"a worker did not start; its output is in {log}")

    def check(self, key: str, seconds: float) -> Record:
        """The entry's record; of a worker that dies or hangs meanwhile, one that says so."""
        self.entries += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{key}\n".encode())
            self._process.stdin.flush()
            line = self._line(seconds)
        except BrokenPipeError:
            line = None
        if line is not None:
            return Record.from_line(line)
        reason = f"no result within {seconds:.0f} s"
        if self._process.poll() is not None:
            reason = f"the process died ({self._death()})"
        self.close()
        database, _, entry = key.partition(":")
        return Record(database, entry, seconds, {"run": Outcome(FAILED, reason=reason)})

    @property
    def alive(self) -> bool:
        """Whether it can take another entry."""
        return self._process.poll() is None and self.entries < ENTRIES_A_WORKER

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(BrokenPipeError):  # a key nobody read is still in it
                    pipe.close()

    def _line(self, seconds: float) -> str | None:
        """The next line, or ``None`` once the time is over or the process has ended."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            ready, _, _ = select.select([descriptor], [], [], seconds)
            data = os.read(descriptor, 1 << 20) if ready else b""
            if not data:
                if ready:
                    self._process.wait()
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def _death(self) -> str:
        """The signal or exit code, and the first line of the Python stack at that moment."""
        text = self._log.read_text(errors="replace").splitlines()
        places = [line.strip() for line in text[-60:] if line.strip().startswith("File ")]
        return f"exit code {self._process.returncode}{'; ' + places[0] if places else ''}"


def run(
    keys: Sequence[str],
    arguments: Sequence[str],
    folder: Path,
    jobs: int,
    seconds: float,
    took: Callable[[Record], None],
) -> None:
    """Check every entry of ``keys``; ``took`` gets each record as it comes, one at a time.

    ``arguments`` are those of a worker: mode, backend, perhaps ``quick``.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for key in keys:
        waiting.put(key)
    lock = threading.Lock()
    problems: list[Exception] = []

    def serve(number: int) -> None:
        worker: Worker | None = None
        try:
            while not problems:
                try:
                    key = waiting.get_nowait()
                except queue.Empty:
                    return
                if worker is None or not worker.alive:
                    if worker is not None:
                        worker.close()
                    worker = Worker(arguments, folder / f"worker-{number}.log")
                record = worker.check(key, seconds)
                with lock:
                    took(record)
        except Exception as error:  # noqa: BLE001  (handed on by the caller's thread below)
            problems.append(error)
        finally:
            if worker is not None:
                worker.close()

    threads = [
        threading.Thread(target=serve, args=(number,)) for number in range(min(jobs, len(keys)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
