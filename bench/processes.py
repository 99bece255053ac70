"""Processes that answer each line they are sent with a line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

LONGEST = 900.0
"""Seconds after which a process that has not finished is ended, and the benchmark fails."""


@contextmanager
def started(
    module: str, *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A module run by this interpreter; at the end it is killed, unless :func:`finish` was called.

    Args:
        module: what ``python -m`` runs.
        arguments: its command line.
        environment: all of its variables; None for this process's.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        watch = threading.Timer(LONGEST, process.kill)
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            process.kill()


def ask(process: subprocess.Popen[str], what: str) -> Any:
    """Send a line, and wait for what it is answered with."""
    assert process.stdin is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    return answered(process)


def answered(process: subprocess.Popen[str]) -> Any:
    """The next answer; a process that ended instead is an error."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args} ended with {process.wait()}: its errors are above")
    return json.loads(line)


def finish(process: subprocess.Popen[str]) -> None:
    """End its input, and wait until it has ended as it does by itself."""
    process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")


def answering() -> Callable[[Any], None]:
    """What sends an answer; all that is printed from now on goes to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(found: Any) -> None:
        print(json.dumps(found), file=answers, flush=True)

    return answer


def asked() -> Iterator[Sequence[str]]:
    """The words of each line that this process is sent."""
    for line in sys.stdin:
        yield line.split()
