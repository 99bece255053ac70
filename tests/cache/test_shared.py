"""The shared tier over every kind of store: a mounted folder, fsspec's own, and S3."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fuse.cache import CacheWarning, EntryRejectedError, clear, listing, prune, verify
from fuse.cache.entry import pack
from fuse.cache.opening import open_cache
from fuse.cache.settings import CacheSettings
from fuse.cache.shared import MountedFolder, RemoteStore
from fuse.cache.store import Store
from fuse.ports import free_port
from tests.cache.common import SECRET, Maker, awake_seconds, key_of, open_at, payload_of

KINDS = ["folder", "memory", "local", "s3"]
A, B = key_of("a"), key_of("b")
NOT_SHARED = {"skip_instance_cache": True}
"""For fsspec: a driver of its own, as another host has, and none that this process has already."""
OTHER_SECRET = b"another key of sufficient length"
# The drivers of S3 warn of their own affairs on import and of open sessions at the end.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@dataclass
class Place:
    shared: str
    options: dict[str, Any] = field(default_factory=dict)

    def store(self, **arguments: Any) -> Store:
        if "://" in self.shared:
            return RemoteStore(self.shared, options=self.options, **arguments)
        return MountedFolder(Path(self.shared), **arguments)

    def settings(self, secret: bytes = SECRET) -> dict[str, Any]:
        # Nothing is raced in these tests, so that each shows what the store does.
        return {
            "shared": self.shared,
            "shared_options": self.options,
            "key": secret,
            "head_start_seconds": 20.0,
            "shared_seconds": 20.0,
        }


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    name = uuid.uuid4().hex
    if request.param == "folder":
        return Place(str(tmp_path / "shared"))
    if request.param == "s3":
        options = request.getfixturevalue("s3")
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("s3", **options).mkdir(name)
        return Place(f"s3://{name}/folder", options)
    pytest.importorskip("fsspec")
    return Place(f"memory://{name}" if request.param == "memory" else f"local://{tmp_path}/shared")


def test_a_store_holds_blobs(place: Place) -> None:
    store = place.store()
    assert store.read(A.digest) is None and store.contents() == [] and store.foreign() == []
    store.write(A.digest, b"old")
    store.write(A.digest, b"0123456789")
    store.write(B.digest, b"b")
    assert store.read(A.digest) == b"0123456789"
    assert store.read_start(A.digest, 4) == b"0123"
    assert {(item.digest, item.size) for item in place.store().contents()} == {
        (A.digest, 10),
        (B.digest, 1),
    }
    assert all(abs(item.used - time.time()) < 600 for item in store.contents())
    store.remove(A.digest)
    store.remove(A.digest)
    assert store.read(A.digest) is None and store.read(B.digest) == b"b"


def test_a_listing_shows_what_another_host_stored_since(place: Place) -> None:
    """Drivers keep listings, which know nothing of what others have written meanwhile."""
    here, there = place.store(), Place(place.shared, {**place.options, **NOT_SHARED}).store()
    there.write(A.digest, b"a")
    assert [item.digest for item in here.contents()] == [A.digest]
    there.write(B.digest, b"b")
    assert {item.digest for item in here.contents()} == {A.digest, B.digest}
    there.remove(A.digest)
    assert [item.digest for item in here.contents()] == [B.digest]


def test_an_object_above_the_bound_is_not_read(place: Place) -> None:
    place.store().write(A.digest, bytes(100))
    assert place.store(max_entry_bytes=100).read(A.digest) == bytes(100)
    with pytest.raises(EntryRejectedError) as caught:
        place.store(max_entry_bytes=99).read(A.digest)
    assert caught.value.reason == "too-large"


def test_one_host_makes_and_the_other_finds(place: Place, tmp_path: Path) -> None:
    maker = Maker()
    first = open_at(tmp_path / "host1", **place.settings())
    maker(first, A)
    assert first.flush()
    second = open_at(tmp_path / "host2", **place.settings())
    maker(second, A)
    assert second.flush()
    assert maker.made == ["a"]
    counts = second.stats()["tiers"]
    assert counts["shared"]["hits"] == 1 and counts["disk"]["puts"] == 1
    assert first.stats()["tiers"]["shared"]["puts"] == 1
    first.close()
    second.close()


def test_what_is_not_signed_by_us_is_rejected_counted_and_made_again(
    place: Place, tmp_path: Path
) -> None:
    payload = payload_of(A)
    signed = pack(A, payload, created=0.0, secret=SECRET)
    bad = {
        "unsigned": pack(A, payload, created=0.0),
        "signature": pack(A, payload, created=0.0, secret=OTHER_SECRET),
        "swapped": pack(B, payload_of(B), created=0.0, secret=SECRET),
        "truncated": signed[:-1],
        "checksum": signed.replace(payload[:16], bytes(16)),
        "magic": b"x" * 100,
    }
    for reason, blob in bad.items():
        place.store().write(A.digest, blob)
        maker, cache = Maker(), open_at(tmp_path / reason, **place.settings())
        with pytest.warns(CacheWarning, match=rf"shared tier: .* rejected \({reason}\)"):
            maker(cache, A)
            assert cache.flush()
        assert maker.made == ["a"]
        assert cache.stats()["tiers"]["shared"]["rejections"] == {reason: 1}
        cache.close()
        # The new entry took the place of the bad one.
        after = open_at(None, **place.settings())
        maker(after, A)
        assert maker.made == ["a"]
        after.close()


def test_control_of_a_shared_tier(place: Place, tmp_path: Path) -> None:
    cache = open_at(tmp_path / "host", **place.settings())
    for key in (A, B):
        Maker()(cache, key)
        assert cache.flush()
    tier = cache.tier("shared")
    assert {item.header.key for item in listing(tier) if item.header} == {A, B}
    assert verify(tier).sound == 2
    place.store().write(A.digest, b"damaged")
    assert verify(tier).rejected == {A.digest: "truncated"}
    assert len(tier.store.contents()) == 2
    assert prune(tier, 10**6) == 0 and prune(tier, 0) == 2
    assert clear(tier) == 0 and verify(tier).sound == 0
    cache.close()


def test_a_remote_that_is_not_there_costs_a_making(tmp_path: Path) -> None:
    pytest.importorskip("s3fs", reason="needs s3fs")
    options = {
        "key": "k",
        "secret": "s",
        "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{free_port()}"},
    }
    settings = CacheSettings(
        directory=tmp_path / "cache",
        shared="s3://bucket/folder",
        shared_options=options,
        key=SECRET,
        shared_seconds=2.0,
        exit_seconds=20.0,
    )
    maker, cache = Maker(), open_cache(settings)
    started = awake_seconds()
    with pytest.warns(CacheWarning, match="shared tier"):
        for number in range(4):
            maker(cache, key_of(f"k{number}"))
        cache.flush()
        cache.close()
    assert len(maker.made) == 4 and awake_seconds() - started < 20
    counts = cache.stats()["tiers"]["shared"]
    assert counts["puts"] == 0 and (counts["bypasses"] or counts["failures"])


def test_a_driver_that_is_not_installed_costs_one_warning(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    maker, cache = Maker(), open_at(tmp_path, shared="nosuch://x", key=SECRET)
    with pytest.warns(CacheWarning, match="nosuch") as seen:
        maker(cache, A)
        maker(cache, B)
        cache.flush()
        cache.close()
    assert maker.made == ["a", "b"] and len(seen) == 1


def test_the_leaving_process_stores_in_the_remote(place: Place, tmp_path: Path) -> None:
    if place.shared.startswith("memory"):
        pytest.skip("a store in memory ends with its process")
    program = (
        "import sys, json\n"
        "from tests.cache.common import open_at, key_of, payload_of, SECRET\n"
        "place = json.loads(sys.argv[1])\n"
        "cache = open_at(None, shared=place['shared'], shared_options=place['options'],"
        " key=SECRET, shared_seconds=20.0)\n"
        "cache.put(key_of('a'), payload_of(key_of('a')), bytes)\n"
    )
    arguments = json.dumps({"shared": place.shared, "options": place.options})
    out = subprocess.run(
        [sys.executable, "-c", program, arguments],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert place.store().read(A.digest) is not None, out.stderr


def test_a_mounted_folder_has_the_mode_mask_of_the_process(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        MountedFolder(tmp_path / "shared").write(A.digest, b"x")
    finally:
        os.umask(old)
    (path,) = (tmp_path / "shared").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_mounted_folder_prunes_by_use(tmp_path: Path) -> None:
    store = MountedFolder(tmp_path)
    for number, key in enumerate((A, B)):
        store.write(key.digest, bytes(100))
        os.utime(tmp_path / f"{key.digest}.fuse", (number, number))
    assert store.read(A.digest) == bytes(100)
    assert store.prune(150) == 1 and store.evictions == 1
    assert [item.digest for item in store.contents()] == [A.digest]


def test_a_mounted_folder_prunes_what_killed_writers_left(tmp_path: Path) -> None:
    store = MountedFolder(tmp_path)
    for name, age in (("old", 10**6), ("new", 10), ("ahead", -(10**6))):
        path = tmp_path / f".tmp-{name}"
        path.touch()
        os.utime(path, (time.time() - age, time.time() - age))
    assert store.foreign() == [] and store.prune(10**6) == 0
    assert [path.name for path in tmp_path.iterdir()] == [".tmp-new"]


def test_a_read_stamps_the_file_that_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, victim = MountedFolder(tmp_path / "shared"), tmp_path / "victim"
    store.write(A.digest, b"x" * 10)
    victim.touch()
    os.utime(victim, (1, 1))
    path = tmp_path / "shared" / f"{A.digest}.fuse"

    def exchanged(descriptor: int, count: int) -> bytes:
        path.unlink()
        path.symlink_to(victim)
        return os.read(descriptor, count)

    monkeypatch.setattr("fuse.cache.files.read_up_to", exchanged)
    assert store.read(A.digest) == b"x" * 10
    assert victim.stat().st_mtime == 1
