"""The bytes of one stored entry.

Layout, big-endian, everything before the checksum being the *body*::

    8   magic
    4   format version
    4   flags (bit 0: a signature follows the checksum)
    32  key digest
    8   length of the header
    8   length of the payload
    n   header: JSON with the label, the time of writing and the labelled fields
    m   payload
    32  SHA-256 of the body
    32  HMAC-SHA256 of a domain tag and the body, when flag bit 0 is set

The signature thus covers the key digest, the header and the payload together: an entry
cannot be moved to another key's name, and a header cannot be put before another payload.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from dataclasses import dataclass
from typing import Any, final

from fuse.cache.errors import EntryRejectedError
from fuse.cache.key import Key

FORMAT_VERSION = 1
# The line ends in the magic show a transfer in text mode at the first look.
MAGIC = b"FUSE\r\n\x1a\n"
_PREFIX = struct.Struct(">8sII32sQQ")
PREFIX_BYTES = _PREFIX.size
_HASH_BYTES = 32
_SIGNED = 1
_SIGNATURE_DOMAIN = b"fuse.cache.entry.1"
MAX_HEADER_BYTES = 64 << 20
_LATEST = 253_402_300_800.0  # the year 10000


@final
@dataclass(frozen=True, slots=True)
class Header:
    """What an entry says of itself: its key, when it was written, and the payload's size."""

    key: Key
    created: float
    payload_bytes: int


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """A verified entry."""

    header: Header
    payload: bytes


def pack(key: Key, payload: bytes, *, created: float, secret: bytes | None = None) -> bytes:
    """Return the bytes of an entry, signed when there is a ``secret``.

    Args:
        key: the entry's key; its fields are written in full, for explanations.
        payload: any bytes.
        created: seconds since the epoch; informative only.
        secret: the key of the signature, or None for an entry without one.
    """
    created = min(max(created, 0.0), _LATEST - 1.0)  # whatever the clock says
    document = {"label": key.label, "created": created, "fields": key.as_dict()}
    header = json.dumps(document, sort_keys=True).encode("ascii")
    flags = 0 if secret is None else _SIGNED
    prefix = _PREFIX.pack(
        MAGIC, FORMAT_VERSION, flags, bytes.fromhex(key.digest), len(header), len(payload)
    )
    body = b"".join((prefix, header, payload))
    parts = [body, hashlib.sha256(body).digest()]
    if secret is not None:
        parts.append(_signature(secret, body))
    return b"".join(parts)


def unpack(blob: bytes, *, digest: str, secret: bytes | None, signed: bool) -> Entry:
    """Return the entry in ``blob`` after every check, cheapest first.

    Nothing of the header is parsed before the checksum, and where a signature is demanded
    the signature, are found right.

    Args:
        blob: the stored bytes.
        digest: the digest under whose name the bytes were found.
        secret: the key to check a signature with, or None where none is known.
        signed: whether a valid signature is demanded; needs ``secret``.

    Raises:
        EntryRejectedError: with the reason, for any bytes that ``pack`` did not write for
            this digest.
    """
    flags, stored, header_bytes, payload_bytes = _prefix(blob)
    body_bytes = PREFIX_BYTES + header_bytes + payload_bytes
    trailer = _HASH_BYTES * (2 if flags & _SIGNED else 1)
    if len(blob) != body_bytes + trailer:
        raise EntryRejectedError(
            "truncated", f"entry {digest} holds {len(blob)} bytes, not {body_bytes + trailer}"
        )
    view = memoryview(blob)
    body, checksum = view[:body_bytes], view[body_bytes : body_bytes + _HASH_BYTES]
    if not hmac.compare_digest(hashlib.sha256(body).digest(), checksum):
        raise EntryRejectedError("checksum", f"entry {digest} is damaged: its checksum differs")
    if signed:
        _check_signature(digest, flags, body, view[body_bytes + _HASH_BYTES :], secret)
    if stored != digest:
        raise EntryRejectedError("swapped", f"entry {digest} holds the entry of {stored}")
    header = _header(bytes(body[PREFIX_BYTES : PREFIX_BYTES + header_bytes]), stored, payload_bytes)
    return Entry(header, bytes(body[PREFIX_BYTES + header_bytes :]))


def header_bytes_needed(start: bytes) -> int:
    """Return how many leading bytes hold prefix and header, given at least the prefix.

    Raises:
        EntryRejectedError: the bytes are not the start of an entry.
    """
    _, _, header_bytes, _ = _prefix(start)
    return PREFIX_BYTES + header_bytes


def read_header(start: bytes) -> Header:
    """Return the header from an entry's leading bytes, for listings and explanations.

    The fields must give the digest; neither checksum nor signature is looked at, so the
    result says nothing about the payload.

    Raises:
        EntryRejectedError: the bytes do not hold a header whose fields give its digest.
    """
    _, digest, header_bytes, payload_bytes = _prefix(start)
    header = start[PREFIX_BYTES : PREFIX_BYTES + header_bytes]
    if len(header) != header_bytes:
        raise EntryRejectedError("truncated", f"entry {digest} ends within its header")
    return _header(header, digest, payload_bytes)


def _prefix(blob: bytes) -> tuple[int, str, int, int]:
    """Return (flags, digest, header length, payload length)."""
    if len(blob) < PREFIX_BYTES:
        raise EntryRejectedError("truncated", f"{len(blob)} bytes are no cache entry")
    magic, version, flags, digest, header_bytes, payload_bytes = _PREFIX.unpack_from(blob)
    if magic != MAGIC:
        raise EntryRejectedError("magic", "the file is no cache entry")
    if version != FORMAT_VERSION:
        raise EntryRejectedError(
            "format", f"the entry has format {version}; this version reads {FORMAT_VERSION}"
        )
    if header_bytes > MAX_HEADER_BYTES:
        raise EntryRejectedError("header", f"an entry claims a header of {header_bytes} bytes")
    return flags, digest.hex(), header_bytes, payload_bytes


def _header(data: bytes, digest: str, payload_bytes: int) -> Header:
    try:
        document: Any = json.loads(data)
        key = Key.of(document["fields"], str(document["label"]))
        created = float(document["created"])
    # What a JSON text of any other shape can raise on the way to a key.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise EntryRejectedError(
            "header", f"entry {digest} has a header of another shape"
        ) from error
    # JSON knows Infinity and NaN here, and no clock gives what a calendar cannot hold.
    if not 0 <= created < _LATEST:
        raise EntryRejectedError("header", f"entry {digest} was written at {created}")
    if key.digest != digest:
        raise EntryRejectedError("header", f"the fields of entry {digest} give {key.digest}")
    return Header(key, created, payload_bytes)


def _signature(secret: bytes, body: bytes | memoryview) -> bytes:
    code = hmac.new(secret, _SIGNATURE_DOMAIN, hashlib.sha256)
    code.update(body)
    return code.digest()


def _check_signature(
    digest: str, flags: int, body: memoryview, found: memoryview, secret: bytes | None
) -> None:
    if secret is None:
        raise ValueError("a demanded signature needs the key to check it with")
    if not flags & _SIGNED:
        raise EntryRejectedError("unsigned", f"entry {digest} carries no signature")
    if not hmac.compare_digest(_signature(secret, body), found):
        raise EntryRejectedError("signature", f"entry {digest} is signed under another key")
