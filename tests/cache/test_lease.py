from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fuse.cache import CacheTrustError
from fuse.cache.lease import Lease, LeaseState, sweep
from tests.cache.common import key_of

DIGEST = key_of("leased").digest


def test_one_holds_and_the_next_follows(tmp_path: Path) -> None:
    first, second = Lease(tmp_path, DIGEST), Lease(tmp_path, DIGEST)
    assert first.poll() is LeaseState.HELD
    assert second.poll() is LeaseState.BUSY
    assert Lease(tmp_path, key_of("other").digest).poll() is LeaseState.HELD
    first.close(stored=True)
    assert second.poll() is LeaseState.HELD
    third = Lease(tmp_path, DIGEST)
    assert third.poll() is LeaseState.BUSY
    second.close(stored=True)
    assert third.poll() is LeaseState.HELD
    third.close(stored=True)
    assert not (tmp_path / "leases" / f"{DIGEST}.lease").exists()


def test_an_end_without_a_result_frees_all_who_wait(tmp_path: Path) -> None:
    holder = Lease(tmp_path, DIGEST)
    waiters = [Lease(tmp_path, DIGEST) for _ in range(3)]
    assert holder.poll() is LeaseState.HELD
    assert [waiter.poll() for waiter in waiters] == [LeaseState.BUSY] * 3
    holder.close(stored=False)
    assert [waiter.poll() for waiter in waiters] == [LeaseState.NO_RESULT] * 3
    assert Lease(tmp_path, DIGEST).poll() is LeaseState.HELD


def test_a_closed_lease_is_never_held(tmp_path: Path) -> None:
    lease = Lease(tmp_path, DIGEST)
    lease.close(stored=False)
    assert lease.poll() is LeaseState.BUSY
    lease.close(stored=False)
    assert Lease(tmp_path, DIGEST).poll() is LeaseState.HELD


def test_a_mark_left_by_a_killed_holder_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    path = tmp_path / "leases" / f"{DIGEST}.lease"
    path.write_text("no result\n")
    lease, waiter = Lease(tmp_path, DIGEST), Lease(tmp_path, DIGEST)
    assert lease.poll() is LeaseState.HELD
    assert waiter.poll() is LeaseState.BUSY
    lease.close(stored=True)
    assert waiter.poll() is LeaseState.HELD


def test_sweeping_takes_the_dead_only(tmp_path: Path) -> None:
    lease = Lease(tmp_path, DIGEST)
    assert lease.poll() is LeaseState.HELD
    (tmp_path / "leases" / "dead.lease").touch()
    assert sweep(tmp_path) == 1
    assert [path.stem for path in (tmp_path / "leases").iterdir()] == [DIGEST]
    assert sweep(tmp_path / "nothing") == 0
    lease.close(stored=True)


def test_leases_that_others_may_write_are_refused(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases").chmod(0o777)
    with pytest.raises(CacheTrustError, match="chmod go-w"):
        Lease(tmp_path, DIGEST).poll()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
# JAX, where another test has imported it, warns of any fork; the child here only exits.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forked_child_does_not_keep_its_parents_lease(tmp_path: Path) -> None:
    lease = Lease(tmp_path, DIGEST)
    assert lease.poll() is LeaseState.HELD
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os.write(writer, lease.poll().value.encode())
        signal.pause()
    try:
        assert os.read(reader, 20) == b"busy"
        waiter = Lease(tmp_path, DIGEST)
        assert waiter.poll() is LeaseState.BUSY
        # What the kernel does for a killed parent: the descriptor goes, nothing is unlocked.
        assert lease._descriptor is not None
        os.close(lease._descriptor)
        lease._descriptor = None
        assert waiter.poll() is LeaseState.HELD
        waiter.close(stored=True)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
