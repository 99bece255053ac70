"""Processes that start with PyTorch and JAX imported, for tests that need a process of their own.

They come from servers that each process of pytest has for itself (``tests.fork_server``), and share
their server's hash seed and addresses: what must be equal between processes is asked of those of
different servers, or of fresh interpreters.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
AT_IMPORT = ("PYTHON", "JAX", "TORCH", "OMP", "MKL", "OPENBLAS", "LD_", "MALLOC", "GLIBC")
"""Begins of the variables that imports read: a server serves those who agree on them."""


class Process:
    """A forked process, with the parts of ``subprocess.Popen`` that tests use, meaning the same.

    Attributes:
        pid: the process's; it is the server's child.
        returncode: what Popen's is.
        stdout: what it prints, as text, if no file was given for it.
    """

    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        output: IO[bytes] | None = None,
        *,
        session: bool = False,
        server: int = 0,
    ) -> None:
        """Run ``python arguments`` in the project's folder; with ``output`` both its streams go to
        that file. Of another ``server``, it shares nothing with the processes of this one."""
        self.args = arguments
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        if output is None:
            (self.stdout, out), (self.stderr, error) = _pipe(), _pipe()
        else:
            out, error = os.dup(output.fileno()), os.dup(output.fileno())
        self._answers, reply = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = [os.open(os.devnull, os.O_RDONLY), out, error, reply.detach()]
        request = {
            "arguments": arguments,
            "environment": dict(environment),
            "session": session,
        }
        asked = _server(server, _at_import(environment))
        socket.send_fds(asked, [json.dumps(request).encode()], given)
        for descriptor in given:
            os.close(descriptor)
        self.pid = self._answer()
        self._reading: list[Future[str]] = []

    def poll(self) -> int | None:
        """The return code, or None while the process runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The return code; TimeoutExpired if the process does not end in so many seconds."""
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                self.returncode = self._answer()
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from error
            self._answers.close()
        return self.returncode

    def _answer(self) -> int:
        """The next number that the server says of the process."""
        said = self._answers.recv(32)
        if not said:
            raise ChildProcessError(f"the fork server of {self.args} has ended; see its errors")
        return int(said)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The rest of both streams, once the process has ended; TimeoutExpired if it does not."""
        assert self.stdout is not None and self.stderr is not None
        if not self._reading:
            readers = ThreadPoolExecutor(2)
            self._reading = [readers.submit(one.read) for one in (self.stdout, self.stderr)]
            readers.shutdown(wait=False)
        if wait(self._reading, timeout).not_done:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait()
        out, errors = (one.result() for one in self._reading)
        self.stdout.close()
        self.stderr.close()
        return out, errors

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process was not seen to end."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _pipe() -> tuple[IO[str], int]:
    """A stream to read from, and the descriptor that feeds it."""
    mine, theirs = os.pipe()
    return os.fdopen(mine), theirs


def _at_import(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(one for one in environment.items() if one[0].startswith(AT_IMPORT)))


@functools.cache
def _server(number: int, at_import: tuple[tuple[str, str], ...]) -> socket.socket:
    """Where to ask for processes of this environment."""
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(AT_IMPORT)}
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
            cwd=ROOT,
            env=kept | dict(at_import),
            pass_fds=[theirs.fileno()],
        )
    atexit.register(_end, server, requests)
    return requests


def _end(server: subprocess.Popen[bytes], requests: socket.socket) -> None:
    requests.close()
    server.wait()
