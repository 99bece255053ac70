"""Bundles: a zip file of entries, to carry a compiled workload to another machine.

The members are stored uncompressed under ``entries/`` with their file names in a cache;
executables compress little, and whoever opens the file sees what it holds. With a key the
entries are signed, and an import with a key accepts signed entries only. An import without
a key trusts the bundle as an installer trusts a package: whoever made it runs code here.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from fuse.cache.entry import Entry, pack, unpack
from fuse.cache.errors import CacheBundleError, EntryRejectedError
from fuse.cache.files import temporary_name
from fuse.cache.store import digest_of, name_of
from fuse.cache.stored import StoredTier

_FOLDER = "entries/"
# What zipfile raises for bytes that are no sound archive: beside its own error, those of
# sizes, offsets, names, versions and encryption flags taken from damaged fields.
_DAMAGES = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    EOFError,
    OSError,
    ValueError,
    OverflowError,
    RuntimeError,
    struct.error,
    zlib.error,
)


@final
@dataclass(slots=True)
class BundleReport:
    """What an export wrote or an import took.

    Attributes:
        digests: the entries that are in the bundle, or now in the cache.
        size: the bytes of their payloads.
        missing: digests that were asked for and are in no tier (export).
        rejected: reason by digest or member name.
    """

    digests: list[str] = field(default_factory=list)
    size: int = 0
    missing: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)


def export_bundle(
    path: Path,
    tiers: Sequence[StoredTier],
    *,
    digests: Sequence[str] | None = None,
    secret: bytes | None = None,
) -> BundleReport:
    """Write entries to a new bundle at ``path``, in place of what was there.

    Args:
        path: the bundle; it appears whole or not at all.
        tiers: where to look for each entry, in this order.
        digests: which entries (see ``read_record``); every one of ``tiers[0]`` where None.
        secret: signs the entries in the bundle.

    Raises:
        OSError: the bundle cannot be written.
        TierBypassError: a tier does not answer.
    """
    report = BundleReport()
    if digests is None:
        digests = [stored.digest for stored in tiers[0].run(tiers[0].store.contents)]
    temporary = path.with_name(temporary_name())
    try:
        with zipfile.ZipFile(temporary, "x", zipfile.ZIP_STORED) as bundle:
            for digest in dict.fromkeys(digests):
                entry = _find(tiers, digest, report)
                if entry is not None:
                    _write(bundle, entry, secret)
                    report.digests.append(digest)
                    report.size += len(entry.payload)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return report


def import_bundle(path: Path, tier: StoredTier, *, secret: bytes | None = None) -> BundleReport:
    """Take every sound entry of the bundle at ``path`` into ``tier``.

    Args:
        path: the bundle.
        tier: where the entries go, usually the disk tier.
        secret: with it, only entries signed under it are taken.

    Raises:
        CacheBundleError: the file is no bundle.
        OSError: the file cannot be read, or an entry cannot be stored.
        TierBypassError: the tier does not take an entry, such as one above its bound.
    """
    report = BundleReport()
    with _opened(path) as bundle:
        for member in bundle.infolist():
            digest = digest_of(member.filename.removeprefix(_FOLDER))
            if digest is None:
                report.rejected[member.filename] = "foreign"
                continue
            try:
                entry = _read(bundle, member, digest, secret)
            except EntryRejectedError as error:
                tier.counters.add_reason("rejections", error.reason)
                report.rejected[digest] = error.reason
                continue
            tier.run(tier.write, entry.header.key, entry.payload)
            report.digests.append(digest)
            report.size += len(entry.payload)
    return report


def _find(tiers: Sequence[StoredTier], digest: str, report: BundleReport) -> Entry | None:
    for tier in tiers:
        try:
            entry = tier.run(tier.read, digest)
        except EntryRejectedError as error:
            tier.counters.add_reason("rejections", error.reason)
            report.rejected[digest] = error.reason
            continue
        if entry is not None:
            report.rejected.pop(digest, None)
            return entry
    if digest not in report.rejected:
        report.missing.append(digest)
    return None


def _write(bundle: zipfile.ZipFile, entry: Entry, secret: bytes | None) -> None:
    header = entry.header
    blob = pack(header.key, entry.payload, created=header.created, secret=secret)
    # With a zip file's first date, for its calendar ends in 2107 and a clock may say anything.
    member = zipfile.ZipInfo(_FOLDER + name_of(header.key.digest))
    bundle.writestr(member, blob)


def _read(
    bundle: zipfile.ZipFile, member: zipfile.ZipInfo, digest: str, secret: bytes | None
) -> Entry:
    # Our own members are not compressed: a compressed one could be of any size.
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise EntryRejectedError("foreign", f"{member.filename} is compressed")
    try:
        blob = bundle.read(member)
    except _DAMAGES as error:
        raise EntryRejectedError("checksum", f"{member.filename}: {error}") from error
    return unpack(blob, digest=digest, secret=secret, signed=secret is not None)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with path.open("rb") as file:
        try:
            bundle = zipfile.ZipFile(file)
        except _DAMAGES as error:
            raise CacheBundleError(f"{path} is no bundle: {error}") from error
        with bundle:
            yield bundle
