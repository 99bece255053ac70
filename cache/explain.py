"""Why a key missed: the nearest stored key, and the fields that differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from fuse.cache.key import Key

_ABSENT = "(absent)"
_EXCERPT = 100
_SHORT_DIGEST = 12


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs; ``None`` stands for a key without the field.

    ``line`` is the first differing line, counted from 1.
    """

    field: str
    wanted: str | None
    stored: str | None
    line: int

    @property
    def text(self) -> str:
        """One line: the field, and the first line that differs on either side."""
        wanted, stored = _excerpts(_line(self.wanted, self.line), _line(self.stored, self.line))
        multiline = "\n" in (self.wanted or "") or "\n" in (self.stored or "")
        place = f", line {self.line}" if multiline else ""
        return f"{self.field}{place}: wanted {wanted}, stored {stored}"


@final
@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about a miss.

    Attributes:
        key: the key that was wanted.
        nearest: the stored key that shares most fields, or None where nothing is stored.
        differences: the fields in which the two differ; empty when ``nearest`` is ``key``,
            which then is stored by now.
        compared: how many stored keys were looked at.
    """

    key: Key
    nearest: Key | None
    differences: tuple[Difference, ...]
    compared: int

    @property
    def text(self) -> str:
        """Several lines for people."""
        head = f"key {_short(self.key)} missed"
        if self.nearest is None:
            return f"{head}: nothing is stored to compare it with."
        if not self.differences:
            return (
                f"key {_short(self.key)} is stored. If it missed, it came later or was "
                "rejected: see the rejections in the statistics."
            )
        lines = [
            f"{head}; the nearest of {self.compared} stored keys is {_short(self.nearest)}, "
            f"which differs in {len(self.differences)} of {len(self.key.fields)} fields:"
        ]
        return "\n".join(lines + [f"  {difference.text}" for difference in self.differences])


def explain(key: Key, stored: Iterable[Key]) -> Explanation:
    """Compare ``key`` with every stored key.

    The nearest is the one with most equal fields; among those, the one whose differing
    fields agree longest from their start; among those, the first.
    """
    best: Key | None = None
    best_score = (-1, -1)
    compared = 0
    for other in stored:
        compared += 1
        score = _likeness(key, other)
        if score > best_score:
            best, best_score = other, score
    differences = () if best is None else differences_of(key, best)
    return Explanation(key, best, differences, compared)


def differences_of(wanted: Key, stored: Key) -> tuple[Difference, ...]:
    """Return the fields in which two keys differ, in the order of their names."""
    left, right = wanted.as_dict(), stored.as_dict()
    names = sorted(left.keys() | right.keys())
    return tuple(
        Difference(name, left.get(name), right.get(name), _first_line(left, right, name))
        for name in names
        if left.get(name) != right.get(name)
    )


def _likeness(key: Key, other: Key) -> tuple[int, int]:
    left, right = key.as_dict(), other.as_dict()
    equal = sum(right.get(name) == value for name, value in left.items())
    shared = sum(
        _agreement(value, right[name])
        for name, value in left.items()
        if name in right and right[name] != value
    )
    return equal, shared


def _first_line(left: dict[str, str], right: dict[str, str], name: str) -> int:
    text = left.get(name, "")
    return text.count("\n", 0, _agreement(text, right.get(name, ""))) + 1


def _agreement(left: str, right: str) -> int:
    """Return how many leading characters agree: a binary search over slices, since programs
    have hundreds of thousands of characters and slices compare at memory speed.
    """
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _line(text: str | None, number: int) -> str:
    if text is None:
        return _ABSENT
    lines = text.split("\n")
    return repr(lines[number - 1]) if number <= len(lines) else "(ends)"


def _excerpts(left: str, right: str) -> tuple[str, str]:
    """Cut both lines to the place where they first differ."""
    start = max(0, _agreement(left, right) - _EXCERPT // 2)
    return _cut(left, start), _cut(right, start)


def _cut(text: str, start: int) -> str:
    if len(text) <= _EXCERPT:
        return text
    end = start + _EXCERPT
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")


def _short(key: Key) -> str:
    return key.digest[:_SHORT_DIGEST] + (f" ({key.label})" if key.label else "")
