from __future__ import annotations

import errno
import itertools
import socket

import pytest

from fuse import ports


def test_a_port_can_be_listened_on_and_is_not_one_that_the_system_hands_out() -> None:
    port = ports.free_port()
    assert ports.LOWEST <= port <= ports.HIGHEST < 32_768
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", ports.free_port()))
        server.listen()
        taken, other = server.getsockname()[1], ports.free_port()
        chosen = iter([taken, taken, other])
        monkeypatch.setattr(ports._random, "randint", lambda *bounds: next(chosen))
        assert ports.free_port() == other
        monkeypatch.setattr(ports._random, "randint", lambda *bounds: taken)
        with pytest.raises(OSError, match="ports of 127.0.0.1 are all taken"):
            ports.free_port()


def test_an_address_of_another_machine_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = itertools.count()
    monkeypatch.setattr(ports._random, "randint", lambda *bounds: 20_000 + next(tried))
    with pytest.raises(OSError) as error:
        ports.free_port("192.0.2.1")  # of the addresses that documents use
    assert error.value.errno == errno.EADDRNOTAVAIL and next(tried) == 1
