"""A line on stderr while compiling takes long."""

from __future__ import annotations

import sys
import threading
import time

PATIENCE = 2.0
"""Seconds of compiling after which a progress line appears."""
REFRESH = 0.5
"""Seconds between two updates of the line on a terminal."""


class Progress:
    """What is being compiled, how many of how many, and for how long, around one wait.

    A terminal sees one line that is brought up to date in its place; a file gets one line.
    Either ends with a newline. Nothing is written where all is done in time.
    """

    def __init__(self, total: int, after: float = PATIENCE) -> None:
        """``total`` executables are waited for, and ``after`` seconds nothing is said."""
        self._total, self._after = total, after
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._labels: dict[str, None] = {}
        self._done = 0
        self._started = time.monotonic()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        self._thread = threading.Thread(target=self._watch, name="fuse-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        if self._thread is not None:
            self._thread.join()

    def started(self, label: str) -> None:
        """The executable ``label`` is being made."""
        with self._lock:
            self._labels[label] = None

    def finished(self, label: str) -> None:
        """It is made."""
        with self._lock:
            self._labels.pop(label, None)
            self._done += 1

    def line(self) -> str:
        """The line as it is now, without a newline."""
        with self._lock:
            labels, done = list(self._labels), self._done
        now = f": {labels[0]}" if labels else ""
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        seconds = time.monotonic() - self._started
        return (
            f"fuse: compiling, {done} of {self._total} chunks done after {seconds:.1f} s{now}{more}"
        )

    def _watch(self) -> None:
        if self._finished.wait(self._after):
            return
        stream = sys.stderr
        if stream is None:  # a process without a console
            return
        if not stream.isatty():
            stream.write(self.line() + "\n")
            stream.flush()
            return
        width = 0
        ended = False
        while not ended:
            text = self.line()
            # Blanks cover what a longer text before left behind.
            stream.write("\r" + text.ljust(width))
            stream.flush()
            width = len(text)
            ended = self._finished.wait(REFRESH)
        stream.write("\r" + self.line().ljust(width) + "\n")
        stream.flush()
