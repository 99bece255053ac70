from __future__ import annotations

import hashlib
import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from fuse.cache import EntryRejectedError, Key
from fuse.cache.circuit_breaker import CircuitBreaker
from fuse.cache.counters import Notices
from fuse.cache.entry import MAX_HEADER_BYTES, PREFIX_BYTES, Entry, pack, read_header, unpack
from fuse.cache.errors import REJECTION_REASONS
from fuse.cache.folder import PrivateFolder
from fuse.cache.shared import MountedFolder
from fuse.cache.store import Store, name_of
from fuse.cache.stored import StoredTier
from tests.cache.common import SECRET, key_of, payload_of

KEY, OTHER = key_of("one"), key_of("two")
OTHER_SECRET = b"another key of sufficient length"


def read(blob: bytes, *, digest: str = KEY.digest, secret: bytes | None = None) -> Entry:
    return unpack(blob, digest=digest, secret=secret, signed=secret is not None)


def reason_of(blob: bytes, *, digest: str = KEY.digest, secret: bytes | None = None) -> str:
    with pytest.raises(EntryRejectedError) as caught:
        read(blob, digest=digest, secret=secret)
    assert caught.value.reason in REJECTION_REASONS
    return caught.value.reason


def packed(payload: bytes = b"payload", *, key: Key = KEY, secret: bytes | None = None) -> bytes:
    return pack(key, payload, created=1.5, secret=secret)


def resealed(blob: bytes) -> bytes:
    """The entry with a right checksum, as anybody can write who has no key."""
    size = 32 if int.from_bytes(blob[12:16], "big") == 0 else 64
    body, rest = blob[:-size], blob[len(blob) - size :]
    return body + hashlib.sha256(body).digest() + rest[32:]


@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=50), max_size=6),
    st.binary(max_size=300),
    st.sampled_from([None, SECRET]),
)
def test_an_entry_comes_back_whole(
    fields: dict[str, str], payload: bytes, secret: bytes | None
) -> None:
    key = Key.of(fields, "label")
    blob = pack(key, payload, created=12.25, secret=secret)
    entry = unpack(blob, digest=key.digest, secret=secret, signed=secret is not None)
    assert entry.payload == payload
    assert entry.header.key == key and entry.header.key.fields == key.fields
    assert entry.header.key.label == "label" and entry.header.created == 12.25
    assert read_header(blob) == entry.header


def test_every_reason_has_its_bytes() -> None:
    blob = packed()
    assert reason_of(b"") == "truncated"
    assert reason_of(blob[:-1]) == "truncated"
    assert reason_of(blob + b"\0") == "truncated"
    assert reason_of(b"\x7fELF" + blob[4:]) == "magic"
    assert reason_of(blob.replace(b"\r\n", b"\n", 1) + b"\0") == "magic"
    assert reason_of(blob[:11] + b"\x02" + blob[12:]) == "format"
    assert reason_of(blob[:-40] + b"\xff" + blob[-39:]) == "checksum"
    assert reason_of(blob, digest=OTHER.digest) == "swapped"
    huge = (MAX_HEADER_BYTES + 1).to_bytes(8, "big")
    assert reason_of(blob[:48] + huge + blob[56:]) == "header"


def test_signatures() -> None:
    signed = packed(secret=SECRET)
    assert read(signed, secret=SECRET).payload == b"payload"
    assert reason_of(packed(), secret=SECRET) == "unsigned"
    assert reason_of(signed, secret=OTHER_SECRET) == "signature"
    assert reason_of(packed(key=OTHER, secret=SECRET), secret=SECRET) == "swapped"
    forged = resealed(signed.replace(b"payload", b"PAYLOAD"))
    assert read(forged).payload == b"PAYLOAD"
    assert reason_of(forged, secret=SECRET) == "signature"


@pytest.mark.parametrize(
    "header",
    [b"[]", b"{}", b"{", b"null", b'{"fields": {"a": 1}, "label": "", "created": 0}', b"\xff"],
)
def test_a_header_of_another_shape_is_rejected(header: bytes) -> None:
    prefix = packed()[:48] + len(header).to_bytes(8, "big") + (0).to_bytes(8, "big")
    assert reason_of(resealed(prefix + header + bytes(32))) == "header"


def test_a_header_of_other_fields_is_rejected() -> None:
    blob = resealed(packed().replace(b'"xla"', b'"xlb"'))
    assert reason_of(blob) == "header"
    with pytest.raises(EntryRejectedError, match="the fields of entry"):
        read_header(blob)


def test_a_header_is_readable_without_the_payload() -> None:
    blob = packed()
    end = PREFIX_BYTES + int.from_bytes(blob[48:56], "big")
    assert read_header(blob[:end]).payload_bytes == 7
    assert json.loads(blob[PREFIX_BYTES:end])["label"] == "one"
    with pytest.raises(EntryRejectedError, match="ends within its header"):
        read_header(blob[: end - 1])


def damaged(blob: bytes, other: bytes, dice: random.Random) -> bytes:
    """One random damage of the kinds that disks, transfers and people do."""
    kind = dice.randrange(9)
    at = dice.randrange(len(blob))
    length = dice.randrange(1, 200)
    out = bytearray(blob)
    if kind == 0:
        out[at] ^= 1 << dice.randrange(8)
    elif kind == 1:
        for _ in range(dice.randrange(1, 20)):
            out[dice.randrange(len(out))] = dice.randrange(256)
    elif kind == 2:
        del out[at:]
    elif kind == 3:
        out[at : at + length] = bytes(len(out[at : at + length]))
    elif kind == 4:
        return other
    elif kind == 5:
        out = bytearray(dice.randbytes(dice.randrange(400)))
    elif kind == 6:
        del out[at : at + length]
    elif kind == 7:
        out[at:at] = out[at : at + length]
    else:
        out[at : at + length] = other[at : at + length]
    return bytes(out)


@pytest.mark.parametrize("secret", [None, SECRET])
def test_ten_thousand_damages_give_no_wrong_result(tmp_path: Path, secret: bytes | None) -> None:
    """5,000 on a private folder with checksums, 5,000 on a mounted one with signatures."""
    dice = random.Random(1)
    entries = tmp_path / "cache" / "entries"
    store: Store
    if secret is None:
        store = PrivateFolder(tmp_path / "cache", max_bytes=1 << 20)
    else:
        (tmp_path / "cache").mkdir()
        store = MountedFolder(entries)
    breaker = CircuitBreaker("disk", 60.0, 60.0)
    tier = StoredTier(store, breaker, Notices(), secret=secret, discard=secret is None)
    payload = payload_of(KEY, 400)
    tier.write(OTHER, payload_of(OTHER, 400))
    tier.write(KEY, payload)
    path = entries / name_of(KEY.digest)
    blob, other = path.read_bytes(), (entries / name_of(OTHER.digest)).read_bytes()
    rejected = unchanged = 0
    for number in range(5000):
        bad = damaged(blob, other, dice)
        if secret is not None and number % 3 == 0 and len(bad) > 100:
            bad = resealed(bad)
        path.write_bytes(bad)
        path.chmod(0o600)
        try:
            found = tier.read(KEY.digest)
        except EntryRejectedError as error:
            assert error.reason in REJECTION_REASONS
            assert bad != blob
            rejected += 1
        else:
            assert bad == blob and found and found.payload == payload
            unchanged += 1
    assert rejected + unchanged == 5000 and rejected > 4900
    other_entry = tier.read(OTHER.digest)
    assert other_entry and other_entry.payload == payload_of(OTHER, 400)


@pytest.mark.parametrize("text", [b"Infinity", b"NaN", b"-1.0", b"1e300"])
def test_a_time_that_no_clock_gives_is_rejected(text: bytes) -> None:
    blob = packed()
    length = int.from_bytes(blob[48:56], "big")
    header = blob[PREFIX_BYTES : PREFIX_BYTES + length]
    document = json.loads(header)
    changed = header.replace(str(document["created"]).encode(), text)
    assert changed != header
    prefix = blob[:48] + len(changed).to_bytes(8, "big") + blob[56:PREFIX_BYTES]
    assert reason_of(resealed(prefix + changed + blob[PREFIX_BYTES + length :])) == "header"


@pytest.mark.parametrize("clock", [-1e12, 0.0, 1e300, float("inf")])
def test_whatever_the_clock_says_an_entry_can_be_read(clock: float) -> None:
    blob = pack(KEY, b"payload", created=clock)
    header = unpack(blob, digest=KEY.digest, secret=None, signed=False).header
    assert time.gmtime(header.created)[0] >= 1970
