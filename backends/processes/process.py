"""The program's end: a worker process that is asked and waited for, and a bounded set of them."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, Final, final

from fuse.backends.processes.patience import Patience, processor_seconds
from fuse.backends.processes.serve import LENGTH

START_SECONDS: Final = 300.0
_LOOK: Final = 1.0  # seconds between two looks at what a compiler has used
_LAST: Final = 6  # lines of an aborted compiler's output that its refusal quotes


class Ended(Exception):
    """A worker gave no answer: ``kind`` is ``start``, ``aborted`` or ``time-out``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@final
class Process:
    """One worker; ``ready`` is what it said when it was. Used by one thread at a time."""

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], nice: int = 0
    ) -> None:
        """Start it and wait until it is ready; raises ``Ended`` with what it says.

        Never by ``fork`` alone: Python's ``subprocess`` uses ``vfork`` where it is given no
        function to call, so that a large program stands still for no longer than a small one.
        """
        serve = ["-m", "fuse.backends.processes.serve", str(nice), str(os.getpid()), module]
        # Not from the working directory: its files may be called as modules are.
        command = [sys.executable, "-P", *serve, *arguments]
        try:
            with contextlib.ExitStack() as opened:
                self._log = opened.enter_context(tempfile.TemporaryFile())
                self._process = subprocess.Popen(
                    command,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    env=dict(environment),
                )
                opened.pop_all()  # closed with the process
        except OSError as error:
            raise Ended("start", str(error)) from error
        _alive.add(self)
        os.set_blocking(self._pipe(self._process.stdin), False)
        try:
            self.ready = self._receive(START_SECONDS)
        except Ended:
            self.close()
            raise
        if isinstance(self.ready, str):
            self.close()
            raise Ended("start", self.ready)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, request: bytes, seconds: float) -> Any:
        """The answer to a ``packed`` request, in ``seconds`` of its processor time.

        Raises ``Ended`` where there is none, and the worker is of no use then.
        """
        self._write(request, self._patience(seconds))
        return self._receive(seconds)

    def kill(self) -> None:
        """End the process, from any thread: whoever waits for it gets ``Ended``."""
        self._process.kill()

    def close(self) -> None:
        """End the process and close what leads to it: for the thread that uses the worker."""
        self._process.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close what leads to the process: in a forked child, whose process it is not."""
        _alive.discard(self)
        if self._process.returncode is None:
            self._process.returncode = 0  # else it is waited for, and missed
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> int:
        assert pipe is not None
        return pipe.fileno()

    def _patience(self, seconds: float) -> Patience:
        return Patience(seconds, processor_seconds(self.pid), time.monotonic())

    def _receive(self, seconds: float) -> Any:
        patience = self._patience(seconds)
        (size,) = LENGTH.unpack(self._read(LENGTH.size, patience))
        return pickle.loads(self._read(size, patience))  # noqa: S301  (of our own process)

    def _read(self, size: int, patience: Patience) -> bytes:
        descriptor, data = self._pipe(self._process.stdout), bytearray()
        while len(data) < size:
            while not select.select([descriptor], [], [], _LOOK)[0]:
                self._wait_on(patience)
            part = os.read(descriptor, min(size - len(data), 1 << 20))
            if not part:
                raise Ended("aborted", self._last_words())
            data += part
        return bytes(data)

    def _write(self, data: bytes, patience: Patience) -> None:
        descriptor, left = self._pipe(self._process.stdin), memoryview(data)
        try:
            while left:
                while not select.select([], [descriptor], [], _LOOK)[1]:
                    self._wait_on(patience)
                left = left[os.write(descriptor, left) :]
        except OSError as error:
            raise Ended("aborted", self._last_words()) from error

    def _wait_on(self, patience: Patience) -> None:
        if why := patience.spent(processor_seconds(self.pid), time.monotonic()):
            raise Ended("time-out", why)

    def _last_words(self) -> str:
        """How the process ended, and the last lines that it printed."""
        code = self._process.wait()
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line]
        fatal = [line for line in lines if line.startswith("F") or "Check fail" in line]
        said = "\n".join((fatal or lines)[-_LAST:])
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the compiler ended its process ({how}): {said}"


@final
class Processes:
    """Up to ``most`` workers, each started when all others are busy. Safe to share by threads."""

    def __init__(self, most: int, start: Callable[[], Process]) -> None:
        """Starts nothing; ``start`` is called by the thread that needs one; raises ``Ended``."""
        self._start = start
        self._idle: queue.LifoQueue[Process | None] = queue.LifoQueue()
        for _ in range(most):
            self._idle.put(None)
        self._lock = threading.Lock()
        self.alive: set[Process] = set()

    @contextlib.contextmanager
    def one(self) -> Iterator[Process]:
        """A worker that nobody else uses; one that gives no answer is ended."""
        worker = self._idle.get()
        try:
            if worker is None:
                worker = self._start()
                with self._lock:
                    self.alive.add(worker)
            yield worker
        except BaseException:
            if worker is not None:
                worker.close()
                with self._lock:
                    self.alive.discard(worker)
            worker = None
            raise
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End them; whoever waits for one gets ``Ended``. What is asked later starts new ones."""
        with self._lock:
            for worker in self.alive:
                worker.kill()
            self.alive = set()
        idle: list[Process | None] = []  # the others are closed by those who use them
        with contextlib.suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        for one in idle:
            if one is not None:
                one.close()
            self._idle.put(None)


_alive: weakref.WeakSet[Process] = weakref.WeakSet()


def _forget_all() -> None:
    """In a forked child: a worker ends when its parent does, and no child keeps it alive."""
    for one in list(_alive):
        one.forget()


os.register_at_fork(after_in_child=_forget_all)
