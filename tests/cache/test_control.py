from __future__ import annotations

import os
import random
import time
import zipfile
from pathlib import Path

import pytest

from fuse.cache import (
    CacheBundleError,
    CacheMissError,
    CacheWarning,
    TieredCache,
    clear,
    export_bundle,
    import_bundle,
    listing,
    prune,
    read_record,
    verify,
)
from fuse.cache.store import name_of
from tests.cache.common import SECRET, Maker, key_of, open_at, payload_of

KEYS = [key_of(f"k{number}") for number in range(5)]


@pytest.fixture
def at(tmp_path: Path) -> Path:
    cache = open_at(tmp_path / "cache")
    for key in KEYS:
        Maker()(cache, key)
        cache.flush()
    cache.close()
    return tmp_path / "cache"


def used(cache: TieredCache) -> list[str]:
    return [stored.digest for stored in cache.tier("disk").store.contents()]


def test_list_shows_newest_first_and_what_is_wrong(at: Path) -> None:
    bad = at / "entries" / name_of(KEYS[0].digest)
    bad.write_bytes(b"nothing of the sort, and long enough to hold a whole prefix, indeed")
    os.utime(bad, ns=(0, 0))
    listed = listing(open_at(at).tier("disk"))
    assert [item.stored.digest for item in listed] == [key.digest for key in reversed(KEYS)]
    assert [item.problem for item in listed] == ["", "", "", "", "magic"]
    header = listed[0].header
    assert header is not None and header.key.fields == KEYS[4].fields
    assert header.key.label == "k4" and header.payload_bytes == 1000
    assert abs(header.created - time.time()) < 600 and listed[0].stored.size > 1000


def test_list_reads_headers_of_any_length(tmp_path: Path) -> None:
    key = key_of("long", program="x" * 300_000)
    cache = open_at(tmp_path / "long")
    Maker()(cache, key)
    cache.flush()
    (listed,) = listing(cache.tier("disk"))
    assert listed.header is not None and listed.header.key == key
    cache.close()


def test_clear_and_prune(at: Path) -> None:
    cache = open_at(at)
    tier = cache.tier("disk")
    size = sum(stored.size for stored in tier.store.contents())
    (at / "leases" / "dead.lease").touch()
    assert prune(tier, size // 5 * 2 + 10, at) == 3
    assert used(cache) == [key.digest for key in KEYS[3:]]
    assert list((at / "leases").iterdir()) == []
    assert clear(tier) == 2
    assert used(cache) == [] and listing(tier) == []


def test_verify_finds_counts_and_removes_damage(at: Path) -> None:
    entries = at / "entries"
    (entries / "notes.txt").write_text("mine")
    path = entries / name_of(KEYS[1].digest)
    path.write_bytes(path.read_bytes()[:-3])
    (entries / name_of(KEYS[2].digest)).write_bytes(
        (entries / name_of(KEYS[3].digest)).read_bytes()
    )
    tier = open_at(at).tier("disk")
    found = verify(tier)
    assert found.sound == 3 and found.foreign == ["notes.txt"]
    assert found.rejected == {KEYS[1].digest: "truncated", KEYS[2].digest: "swapped"}
    assert tier.counters.snapshot()["rejections"] == {"truncated": 1, "swapped": 1}
    assert not path.exists() and (entries / "notes.txt").exists()
    assert verify(tier).rejected == {}


def test_verify_of_a_reader_removes_nothing(at: Path) -> None:
    path = at / "entries" / name_of(KEYS[1].digest)
    path.write_bytes(path.read_bytes()[:-3])
    assert len(verify(open_at(at, mode="read-only").tier("disk")).rejected) == 1
    assert path.exists()


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_bundle_carries_a_workload(at: Path, tmp_path: Path, secret: bytes | None) -> None:
    record, bundle = tmp_path / "used", tmp_path / "bundle.zip"
    job = open_at(at, record=record)
    for key in (KEYS[3], KEYS[1], KEYS[3]):
        Maker()(job, key)
    job.close()
    digests = read_record(record)
    assert digests == [KEYS[3].digest, KEYS[1].digest]
    written = export_bundle(bundle, [job.tier("disk")], digests=digests, secret=secret)
    assert written.digests == digests and written.size == 2000
    assert (written.missing, written.rejected) == ([], {})

    cache = open_at(tmp_path / "empty", mode="only")
    taken = import_bundle(bundle, cache.tier("disk"), secret=secret)
    assert taken.digests == digests and taken.rejected == {}
    maker = Maker()
    maker(cache, KEYS[3])
    maker(cache, KEYS[1])
    with pytest.raises(CacheMissError):
        maker(cache, KEYS[0])
    assert maker.made == []


def test_without_a_record_everything_is_exported(at: Path, tmp_path: Path) -> None:
    report = export_bundle(tmp_path / "all.zip", [open_at(at).tier("disk")])
    assert set(report.digests) == {key.digest for key in KEYS}
    assert list(tmp_path.glob(".tmp-*")) == []


def test_an_export_looks_in_every_tier_and_tells_what_is_missing(at: Path, tmp_path: Path) -> None:
    shared = {"shared": str(tmp_path / "shared"), "key": SECRET}
    extra, absent = key_of("extra"), key_of("absent")
    elsewhere = open_at(tmp_path / "elsewhere", **shared)
    Maker()(elsewhere, extra)
    elsewhere.flush()
    elsewhere.close()
    cache = open_at(at, **shared)
    path = at / "entries" / name_of(KEYS[0].digest)
    path.write_bytes(path.read_bytes()[:-1])
    report = export_bundle(
        tmp_path / "b.zip",
        [cache.tier("disk"), cache.tier("shared")],
        digests=[extra.digest, absent.digest, KEYS[0].digest, KEYS[1].digest],
    )
    assert report.digests == [extra.digest, KEYS[1].digest]
    assert report.missing == [absent.digest]
    assert report.rejected == {KEYS[0].digest: "truncated"}


def test_an_import_with_a_key_takes_signed_entries_only(at: Path, tmp_path: Path) -> None:
    tier = open_at(at).tier("disk")
    export_bundle(tmp_path / "plain.zip", [tier])
    export_bundle(tmp_path / "other.zip", [tier], secret=b"another key of sufficient length")
    target = open_at(tmp_path / "target").tier("disk")
    for name, reason in (("plain.zip", "unsigned"), ("other.zip", "signature")):
        report = import_bundle(tmp_path / name, target, secret=SECRET)
        assert report.digests == [] and set(report.rejected.values()) == {reason}
    assert target.store.contents() == []


def test_foreign_and_swapped_members_are_rejected(at: Path, tmp_path: Path) -> None:
    blob = (at / "entries" / name_of(KEYS[0].digest)).read_bytes()
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr("../../evil.fuse", b"x")
        bundle.writestr("readme.txt", b"x")
        bundle.writestr("entries/" + name_of(KEYS[1].digest), blob)
        deflated = zipfile.ZIP_DEFLATED
        bundle.writestr("entries/" + name_of(KEYS[2].digest), bytes(10**6), deflated)
        bundle.writestr("entries/" + name_of(KEYS[0].digest), blob)
    cache = open_at(tmp_path / "target")
    report = import_bundle(path, cache.tier("disk"))
    assert report.digests == [KEYS[0].digest]
    assert report.rejected == {
        "../../evil.fuse": "foreign",
        "readme.txt": "foreign",
        KEYS[1].digest: "swapped",
        KEYS[2].digest: "foreign",
    }
    assert Maker()(cache, KEYS[0]) == payload_of(KEYS[0])


def test_damaged_bundles_never_give_a_wrong_entry(at: Path, tmp_path: Path) -> None:
    path, dice = tmp_path / "b.zip", random.Random(2)
    export_bundle(path, [open_at(at).tier("disk")])
    whole = path.read_bytes()
    tier = open_at(tmp_path / "target").tier("disk")
    broken = 0
    for _ in range(150):
        bad = bytearray(whole)
        if dice.random() < 0.3:
            del bad[dice.randrange(len(bad)) :]
        else:
            # The last part is the directory, where damage does most.
            start = dice.choice([0, len(bad) - 700])
            for _ in range(dice.randrange(1, 4)):
                bad[dice.randrange(start, len(bad))] = dice.randrange(256)
        path.write_bytes(bad)
        try:
            broken += bool(import_bundle(path, tier).rejected)
        except CacheBundleError:
            broken += 1
    assert broken > 100
    assert verify(tier).rejected == {}


def test_no_bundle_at_all(tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_text("nothing")
    tier = open_at(tmp_path / "cache").tier("disk")
    with pytest.raises(CacheBundleError, match="is no bundle"):
        import_bundle(tmp_path / "b.zip", tier)
    with pytest.raises(FileNotFoundError):
        import_bundle(tmp_path / "c.zip", tier)


def test_a_failed_export_leaves_the_old_bundle(at: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    path.write_text("old")
    with pytest.raises(IndexError):
        export_bundle(path, [])
    with pytest.raises(FileNotFoundError):
        export_bundle(tmp_path / "no" / "b.zip", [open_at(at).tier("disk")])
    assert path.read_text() == "old" and list(tmp_path.glob(".tmp-*")) == []


def test_records_of_several_jobs_and_hands(tmp_path: Path) -> None:
    path = tmp_path / "used"
    for keys in ((KEYS[0], KEYS[1]), (KEYS[1], KEYS[2])):
        cache = open_at(None, record=path)
        for key in keys:
            Maker()(cache, key)
            Maker()(cache, key)
        cache.close()
    lines = path.read_text().splitlines()
    assert lines == [f"{key.digest} {key.label}" for key in (*KEYS[:2], *KEYS[1:3])]
    path.write_text(f"# by hand\n\n{KEYS[4].digest}\n{KEYS[4].digest} again\n")
    assert read_record(path) == [KEYS[4].digest]
    path.write_text(f"{KEYS[4].digest}\nk4\n")
    with pytest.raises(CacheBundleError, match=r"used:2 does not start with a digest: 'k4'"):
        read_record(path)


@pytest.mark.parametrize("clock", [0.0, 1e11, 1e300])
def test_a_bundle_of_entries_from_a_clock_that_was_wrong(
    clock: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_at(tmp_path / "one")
    monkeypatch.setattr("fuse.cache.stored.time.time", lambda: clock)
    Maker()(cache, KEYS[0])
    assert cache.flush()
    tier, bundle = cache.tier("disk"), tmp_path / "bundle.zip"
    assert listing(tier)[0].header is not None
    assert export_bundle(bundle, [tier]).digests == [KEYS[0].digest]
    other = open_at(tmp_path / "two")
    assert import_bundle(bundle, other.tier("disk")).digests == [KEYS[0].digest]
    assert other.get(KEYS[0], bytes) == payload_of(KEYS[0])


def test_a_cache_is_found_by_digest_and_what_does_not_fit_is_refused(at: Path) -> None:
    cache, digest = open_at(at), KEYS[1].digest
    found = cache.named(digest, bytes)
    assert found is not None and found.key.fields == KEYS[1].fields
    assert (found.value, found.origin) == (payload_of(KEYS[1]), "disk")
    again = cache.named(digest, bytes)
    assert again is not None and again.origin == "memory"
    assert cache.named("0" * 64, bytes) is None
    counts = cache.stats()["tiers"]
    assert counts["disk"]["hits"] == counts["memory"]["hits"] == 1
    assert counts["disk"]["misses"] == counts["memory"]["misses"] == 0
    with pytest.warns(CacheWarning, match="of another make"):
        cache.refuse(KEYS[1], "of another make")
    assert cache.named(digest, bytes) is None
    assert cache.stats()["tiers"]["disk"]["rejections"] == {"load": 1}
