"""Several processes at once. They import ``fuse.cache`` only, so each starts in a moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fuse.cache import listing, prune, verify
from fuse.cache.locks import locked
from tests.cache.common import (
    ROOT,
    Maker,
    awake_seconds,
    key_of,
    open_at,
    start_worker,
    until,
    wait_ready,
)
from tests.cache.worker import RANK_KEYS, keys

RANKS = 4


def result_of(worker: subprocess.Popen[bytes], seconds: float = 60) -> Any:
    out, _ = worker.communicate(timeout=seconds)
    assert worker.returncode == 0
    return json.loads(out.splitlines()[-1])


def test_four_processes_make_each_entry_once_between_them(at: Path) -> None:
    ranks = [start_worker("rank", at, number) for number in range(RANKS)]
    for worker in ranks:
        wait_ready(worker)
    at.with_name("go").touch()
    results = [result_of(worker) for worker in ranks]
    made = Counter(label for result in results for label in result["made"])
    assert made == {f"k{number}": 1 for number in range(RANK_KEYS)}
    assert sum(result["stats"]["events"].get("lease-waits", 0) for result in results) > 0
    assert verify(open_at(at).tier("disk")).sound == RANK_KEYS
    assert list((at / "leases").iterdir()) == []


@pytest.mark.slow
def test_a_holder_killed_at_fifty_random_moments_hurts_nobody(tmp_path: Path) -> None:
    dice = random.Random(3)
    held = stored = 0
    for moment in range(50):
        at = tmp_path / f"cache{moment}"
        worker = start_worker("victim", at)
        wait_ready(worker)
        leases, entries = at / "leases", at / "entries"
        # Some moments are counted from the start, which may be long before the work or after it.
        if moment % 5:
            until(partial(holds, leases if moment % 2 else entries))
        time.sleep(dice.uniform(0, 0.05 if moment % 5 else 0.12))
        worker.send_signal(signal.SIGKILL)
        worker.communicate(timeout=60)
        held += holds(leases)
        stored += holds(entries)
        maker, cache = Maker(200_000), open_at(at, lease_seconds=600, disk_seconds=600)
        started = awake_seconds()
        for key in keys():
            maker(cache, key)
        assert awake_seconds() - started < 60
        assert cache.flush()
        counts = cache.stats()["tiers"]["disk"]
        assert counts["rejections"] == counts["failures"] == {}
        assert cache.stats()["events"].get("lease-timeout", 0) == 0
        found = verify(cache.tier("disk"))
        assert found.sound == RANK_KEYS and found.rejected == {}
        assert prune(cache.tier("disk"), 10**9, at) == 0
        assert not [path for path in entries.iterdir() if path.name.startswith(".tmp-")]
        assert not list(leases.iterdir())
        cache.close()
    # The moments met holders and writers at work, not before or after it.
    assert held > 10 and stored > 10


def holds(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


def test_a_stopped_holder_costs_the_bound(at: Path) -> None:
    worker = start_worker("hanger", at)
    try:
        wait_ready(worker)
        worker.send_signal(signal.SIGSTOP)
        # Without the bounds of the disk, which pass where this process is stopped for a while.
        maker, cache = Maker(), open_at(at, lease_seconds=0.5, disk_seconds=600)
        began, started = time.monotonic(), awake_seconds()
        maker(cache, keys()[0])
        assert time.monotonic() - began > 0.4
        assert awake_seconds() - started < 10
        assert maker.made == ["k0"] and cache.stats()["events"]["lease-timeout"] == 1
        cache.close()
    finally:
        worker.kill()
        worker.communicate(timeout=60)


def test_the_bound_holds_under_concurrent_writers(at: Path) -> None:
    bound = 60_000
    writers = [start_worker("writer", at, number, bound) for number in range(3)]
    for worker in writers:
        wait_ready(worker)
    at.with_name("go").touch()
    until((at / "lock").exists)
    largest = looks = 0
    while any(worker.poll() is None for worker in writers):
        largest = max(largest, occupied(at))
        looks += 1
    results = [result_of(worker) for worker in writers]
    assert looks > 5 and bound / 2 < largest <= bound
    assert all(not result["tiers"]["disk"]["failures"] for result in results)
    assert sum(result["tiers"]["disk"]["evictions"] for result in results) > 50
    tier = open_at(at).tier("disk")
    assert verify(tier).rejected == {}
    assert len(listing(tier)) > 5


def occupied(at: Path) -> int:
    """The bytes of all files, entries and temporary ones.

    Under the folder's lock nothing is reserved or evicted, so the sum is that of one moment;
    a file that is renamed during the look is counted once.
    """
    sizes: dict[int, int] = {}
    with locked(at / "lock", 30):
        for item in os.scandir(at / "entries"):
            with suppress(FileNotFoundError):
                info = item.stat(follow_symlinks=False)
                sizes[info.st_ino] = info.st_size
    return sum(sizes.values())


def test_a_process_that_may_not_write_large_files_goes_on(at: Path) -> None:
    result = result_of(start_worker("full-disk", at))
    assert result["made"] == ["k0", "k1", "k2"] * 2
    assert result["stats"]["tiers"]["disk"]["failures"] == {"put-EFBIG": 3}
    assert len(result["texts"]) == 2 and "File too large" in result["texts"][0]
    assert result["left"] == []


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that another user reaches, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


def test_a_folder_that_may_not_be_written_costs_one_warning(open_place: Path) -> None:
    if os.geteuid() != 0:
        open_place.chmod(0o555)
    result = result_of(start_worker("other-user", open_place / "cache"))
    assert result["made"] == ["k0", "k1", "k2"] * 2
    disk = result["stats"]["tiers"]["disk"]
    assert disk["failures"].keys() == {"put-EACCES", "lease-EACCES"}
    # Three failures in a row, which is a matter of two threads' order, open the breaker.
    assert sum(disk["failures"].values()) == 6 or disk["bypasses"].keys() == {"paused"}
    # One in each of the two caches.
    assert len(result["texts"]) == 2
    assert all("Permission denied" in text for text in result["texts"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_of_another_user_is_refused(open_place: Path) -> None:
    cache = open_at(open_place / "cache")
    Maker()(cache, key_of("mine"))
    cache.flush()
    cache.close()
    (open_place / "cache").chmod(0o755)
    result = result_of(start_worker("other-user", open_place / "cache"))
    assert result["made"] == ["k0", "k1", "k2"] * 2
    assert len(result["texts"]) == 2
    assert "belongs to user 0, not to 65534" in result["texts"][0]


def test_leaving_at_once_still_stores(at: Path) -> None:
    worker = start_worker("exiting", at)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    maker = Maker()
    maker(open_at(at), keys()[0])
    assert maker.made == []


def test_a_complaint_at_the_end_is_printed_where_warnings_are_errors(at: Path) -> None:
    worker = start_worker("complaining", at, stderr=subprocess.PIPE)
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert b"CacheWarning: compilation cache: an entry was not written" in errors
    assert b"Traceback" not in errors


def test_a_forked_child_ends_whatever_its_parents_threads_did(at: Path) -> None:
    assert result_of(start_worker("forked", at)) == {"status": 0}


def test_a_forked_child_reads_on_threads_of_its_own(at: Path) -> None:
    assert result_of(start_worker("forked-reader", at)) == {"status": 0, "bypasses": {}}


def test_importing_the_cache_is_light() -> None:
    program = (
        "import sys, fuse.cache\n"
        "heavy = {'torch', 'jax', 'jaxlib', 'numpy', 'fsspec', 'asyncio', 'pickle'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
