"""The worker's end: ``python -m fuse.backends.processes.serve NICE PARENT MODULE [ARGUMENT...]``.

Requests come on the standard input and answers go to the standard output, pickled, each after its
length; whatever a compiler prints goes to the standard error. Both ends are the same program of
the same user. The first message says that the worker is ready, or in a ``str`` why it is not.
Nothing is imported here that takes long: a process is nice before it loads anything.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import signal
import struct
import sys
import threading
from typing import IO, Any, Final, Protocol

LENGTH: Final = struct.Struct(">Q")
LOOK: Final = 2.0
"""Seconds between two looks at who the parent is."""


class Server(Protocol):
    """What ``create(*arguments)`` of a worker's module returns."""

    def ready(self) -> Any:
        """The first message, no ``str``."""

    def answer(self, request: Any) -> Any:
        """The answer; an error of the compiler is one, and is not raised."""


def packed(message: object) -> bytes:
    """A message as it goes through a pipe; raises what pickling it does."""
    data = pickle.dumps(message)
    return LENGTH.pack(len(data)) + data


def send(stream: IO[bytes], message: object) -> None:
    """Write one message."""
    stream.write(packed(message))
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; ``None`` at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return pickle.loads(stream.read(LENGTH.unpack(head)[0]))  # noqa: S301  (of our own process)


def end_with(descriptor: int, parent: int) -> None:
    """End this process once nobody can write to ``descriptor`` any more, compiling or not.

    Nor does it outlive ``parent``, of which a forked child may hold that descriptor as well. The
    kernel's own signal for that is sent when the thread ends that started the process.
    """
    gone = select.poll()
    gone.register(descriptor, 0)  # nothing to wait for but the hang-up, which always counts
    while not gone.poll(int(1e3 * LOOK)):
        if os.getppid() != parent:
            break
    os._exit(1)


def main() -> int:
    """Serve until the standard input ends."""
    os.nice(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, meant for the program
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=end_with, args=(0, int(sys.argv[2])), daemon=True).start()
    try:
        server: Server = importlib.import_module(sys.argv[3]).create(*sys.argv[4:])
        ready = server.ready()
    except Exception as error:  # noqa: BLE001  (the parent process says it)
        send(answers, str(error) or type(error).__name__)
        return 1
    send(answers, ready)
    while (request := receive(sys.stdin.buffer)) is not None:
        send(answers, server.answer(request))
    return 0


if __name__ == "__main__":
    sys.exit(main())
