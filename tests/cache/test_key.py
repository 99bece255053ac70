from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from fuse.cache import Key
from fuse.cache.key import encode_fields, is_digest
from tests.cache.common import ROOT

FIELDS = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=4)


@given(FIELDS, FIELDS)
def test_different_fields_give_different_texts_and_digests(
    left: dict[str, str], right: dict[str, str]
) -> None:
    a, b = Key.of(left), Key.of(right)
    assert (encode_fields(a.fields) == encode_fields(b.fields)) == (left == right)
    assert (a.digest == b.digest) == (a == b) == (left == right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": "bc"}, {"ab": "c"}),
        ({"a": "1", "b": "2"}, {"a": "1b2"}),
        ({"a": ""}, {}),
        ({"a": "", "b": ""}, {"a": "b"}),
        ({"a": "x\x00y"}, {"a": "x", "y": ""}),
        ({"a": "\udc80"}, {"a": "\u0080"}),
        ({"a": "\u00e9"}, {"a": "e\u0301"}),
    ],
)
def test_fields_that_look_alike_stay_apart(left: dict[str, str], right: dict[str, str]) -> None:
    assert Key.of(left) != Key.of(right)


def test_order_and_label_do_not_matter() -> None:
    key = Key.of({"a": "1", "b": "2"}, "one")
    assert key == Key.of({"b": "2", "a": "1"}, "two")
    assert len({key, Key.of({"b": "2", "a": "1"}, "two")}) == 1
    assert key.as_dict() == {"a": "1", "b": "2"}


def test_the_digest_is_sha256_of_the_documented_encoding() -> None:
    def part(text: str) -> bytes:
        return len(text.encode()).to_bytes(8, "big") + text.encode()

    text = b"fuse.cache.key.1" + (2).to_bytes(8, "big")
    text += part("a") + part("é") + part("bc") + part("")
    assert Key.of({"bc": "", "a": "é"}).digest == hashlib.sha256(text).hexdigest()


def test_other_processes_give_the_same_digest() -> None:
    program = "from fuse.cache import Key; print(Key.of({'b': 'x', 'a': 'y', 'c': 'z'}).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert digests == {Key.of({"a": "y", "b": "x", "c": "z"}).digest}


def test_wrong_fields_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="key field 'devices' must be text, not int"):
        Key.of({"devices": 2})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="sorted and each named once"):
        Key((("b", "1"), ("a", "2")))
    with pytest.raises(ValueError, match="sorted and each named once"):
        Key((("a", "1"), ("a", "2")))


def test_digests_are_recognised() -> None:
    assert is_digest(Key.of({}).digest)
    assert not is_digest(Key.of({}).digest.upper())
    assert not is_digest(Key.of({}).digest + "\n")
    assert not is_digest("../" + Key.of({}).digest)
