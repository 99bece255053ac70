"""The key of an entry: labelled fields and one digest.

The digest is SHA-256 over a length-prefixed encoding of the fields in the order of their
names, so that no two sets of fields give the same text, and every process on every
machine gives the same digest for the same fields.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

_DOMAIN = b"fuse.cache.key.1"
_LENGTH_BYTES = 8
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Say whether ``text`` is a digest as this module writes it: 64 lower-case hex digits."""
    return _DIGEST.fullmatch(text) is not None


def encode_fields(fields: tuple[tuple[str, str], ...]) -> bytes:
    """Return the unambiguous encoding of sorted fields: counts and lengths before contents.

    ``surrogatepass`` keeps the encoding one-to-one for texts that hold lone surrogates, as
    values from the environment of a process may.
    """
    parts = [_DOMAIN, len(fields).to_bytes(_LENGTH_BYTES, "big")]
    for pair in fields:
        for text in pair:
            data = text.encode("utf-8", "surrogatepass")
            parts += (len(data).to_bytes(_LENGTH_BYTES, "big"), data)
    return b"".join(parts)


@final
@dataclass(frozen=True, slots=True)
class Key:
    """What an entry depends on. Make one with ``Key.of``; equality and hash are the digest's.

    Attributes:
        fields: (name, value) pairs in the order of their names, each name once.
        label: a short text for people; no part of the digest.
        digest: 64 hex digits.
    """

    fields: tuple[tuple[str, str], ...] = field(compare=False)
    label: str = field(default="", compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Check the fields and compute the digest.

        Raises:
            TypeError: a name or a value is not ``str``.
            ValueError: the names are not sorted, or one comes twice.
        """
        names = [name for name, _ in self.fields]
        for name, value in self.fields:
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"key field {name!r} must be text, not {type(value).__name__}")
        if any(left >= right for left, right in zip(names, names[1:], strict=False)):
            raise ValueError(f"key fields must be sorted and each named once, not {names}")
        object.__setattr__(self, "digest", hashlib.sha256(encode_fields(self.fields)).hexdigest())

    @classmethod
    def of(cls, fields: Mapping[str, str], label: str = "") -> Key:
        """Return the key of ``fields``, in whatever order the mapping gives them."""
        return cls(tuple(sorted(fields.items())), label)

    def as_dict(self) -> dict[str, str]:
        """Return the fields as a new dict."""
        return dict(self.fields)
