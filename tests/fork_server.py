"""Forks processes that have PyTorch and JAX imported; ``tests.forked`` asks it to.

A fresh interpreter spends two seconds of a core on these imports, a fork next to nothing. Nothing
of the device is started here, so that a forked process is what a user's is after its imports.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import json
import os
import selectors
import socket
import sys
import types
from importlib.abc import InspectLoader
from typing import Any

import jax
import torch

IMPORTED = (jax, torch)
LONGEST = 1 << 20
"""Bytes of a request."""


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork once a request, and tell how each process ended, until nobody asks any more; what it is
    to run, in a forked one."""
    waiting = selectors.DefaultSelector()
    waiting.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.data is not None:
                waiting.unregister(key.fd)
                _report(key.fd, *key.data)
                continue
            request, descriptors, _, _ = socket.recv_fds(requests, LONGEST, 4)
            if not request:
                return None
            *streams, reply = descriptors
            pid = os.fork()
            if pid == 0:
                _take(streams, reply, waiting)
                wanted: dict[str, Any] = json.loads(request)
                return wanted
            for one in streams:
                os.close(one)
            os.write(reply, f"{pid}".encode())
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, reply))


def _report(watched: int, pid: int, reply: int) -> None:
    """Say with which code a process has ended, negative for a signal, as ``subprocess`` does."""
    _, status = os.waitpid(pid, 0)
    os.close(watched)
    with contextlib.suppress(BrokenPipeError):  # whoever asked has gone
        os.write(reply, f"{os.waitstatus_to_exitcode(status)}".encode())
    os.close(reply)


def _take(streams: list[int], reply: int, waiting: selectors.BaseSelector) -> None:
    """In the forked process: its own standard streams, and nothing else of the server's."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for key in list(waiting.get_map().values()):
        os.close(key.fd)
        if key.data is not None:
            os.close(key.data[1])
    waiting.close()
    for descriptor in (*streams, reply):
        os.close(descriptor)


def become(arguments: list[str], environment: dict[str, str], session: bool) -> None:
    """Run what ``python arguments`` would: ``-c code``, ``-m module`` or a file, and the rest.

    Not by ``runpy``, which takes ``__main__`` away at its end, where finalisers still need it.
    """
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    faulthandler.enable()
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    kind, *rest = arguments
    if kind == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        code = compile(rest[0], "<string>", "exec")
    elif kind == "-m":
        spec = importlib.util.find_spec(rest[0])
        assert spec is not None and isinstance(spec.loader, InspectLoader), rest
        sys.argv, sys.path[0] = [str(spec.origin), *rest[1:]], os.getcwd()
        main.__dict__.update(__spec__=spec, __file__=spec.origin, __package__=spec.parent)
        found = spec.loader.get_code(rest[0])
        assert found is not None
        code = found
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.abspath(kind))
        main.__dict__["__file__"] = kind
        with open(kind, encoding="utf-8") as file:
            code = compile(file.read(), kind, "exec")
    exec(code, main.__dict__)


def main(descriptor: str) -> None:
    """Serve what is asked through an inherited socket."""
    requests = socket.socket(fileno=int(descriptor))
    wanted = serve(requests)
    if wanted is not None:
        requests.detach()  # closed by the fork
        become(**wanted)


if __name__ == "__main__":
    main(*sys.argv[1:])
