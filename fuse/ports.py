"""Ports for servers that are told theirs, and take it some time after it was chosen."""

from __future__ import annotations

import errno
import random
import socket

LOWEST, HIGHEST = 20_000, 32_000
"""Below what Linux gives to whoever asks for any port (32,768 on): of those it hands one that has
just been let go to the next who asks, before the server is there to listen on it."""
_TRIES = 100
_random = random.SystemRandom()  # whatever seeds a program sets, two that start together differ


def free_port(host: str = "127.0.0.1") -> int:
    """A port of ``host``, one of this machine's addresses, that nobody listens on.

    Raises:
        OSError: the address is none of this machine's, or every port tried is taken.
    """
    for _ in range(_TRIES):
        port = _random.randint(LOWEST, HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
    raise OSError(errno.EADDRINUSE, f"{_TRIES} ports of {host} are all taken")
