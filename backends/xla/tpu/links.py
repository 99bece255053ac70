"""Links between the chips of a slice, and what a collective takes at their published peak."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one generation.

    Attributes:
        each_way: bytes a second over one link in one direction.
        closes: an axis whose number of chips is a multiple of this is a ring; shorter ones are
            lines, of which only one end sends at a time.
        source: where the figures are published.
    """

    each_way: float
    closes: int
    source: str


_DOCS = "https://cloud.google.com/tpu/docs/"
LINKS = {
    "v4": Links(50e9, 4, _DOCS + "v4"),
    "v5e": Links(50e9, 16, _DOCS + "v5e"),
    "v5p": Links(100e9, 4, _DOCS + "v5p"),
    "v6e": Links(100e9, 16, _DOCS + "v6e"),
    "tpu7x": Links(100e9, 4, _DOCS + "tpu7x"),
}
"""What is published is a chip's, both ways together: 400 GB/s of a v5e with four links, 1,200 of a
v5p with six, 800 of a v6e with four, 600 of a v4 and 1,200 of a tpu7x with six each."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The chips of a target: where each of its devices is."""

    links: Links
    places: tuple[tuple[int, ...], ...]

    def sizes(self) -> list[int]:
        """Chips along each axis."""
        return [len(set(axis)) for axis in zip(*self.places, strict=True)]

    def rate(self, group: Sequence[int]) -> float:
        """Bytes a second that reach each device where a group gathers along all axes it spans."""
        members = [self.places[device] for device in group]
        rate = 0.0
        for axis, size in zip(zip(*members, strict=True), self.sizes(), strict=True):
            spanned = len(set(axis))
            if spanned > 1:
                ring = spanned == size and size % self.links.closes == 0
                rate += self.links.each_way * (2 if ring else 1)
        # Two devices of one chip: what is published of a link between them is nothing.
        return rate or math.inf

    def seconds(self, kind: str, nbytes: int, group: Sequence[int]) -> float:
        """What a collective takes; ``nbytes`` are those of the whole array, of all shards together.

        Each device receives all of it but its own part; an all-reduce is a reduce-scatter and a
        gather; of an all-to-all each device sends a part of its own array to each, over a quarter
        of a ring on average.
        """
        ranks = len(group)
        if ranks < 2:
            return 0.0
        share, rate = (ranks - 1) / ranks, self.rate(group)
        if kind == "collective-permute":
            return nbytes / self.links.each_way
        if kind == "all-to-all":
            return share * nbytes * max(ranks / 8, 1) / rate
        return (2 if kind == "all-reduce" else 1) * share * nbytes / rate


_LISTS = re.compile(r"replica_groups=\{(\{[\d,{}\s]*\})\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")


def group_of(line: str, devices: int) -> tuple[int, ...]:
    """The first group of a collective's instruction; all devices where it names none."""
    listed = _LISTS.search(line)
    if listed:
        first = listed[1].split("}")[0].strip("{")
        return tuple(int(one) for one in first.split(",")) if first else tuple(range(devices))
    iota = _IOTA.search(line)
    if not iota:
        return tuple(range(devices))
    (_, size), sizes = _numbers(iota[1])[-2:], _numbers(iota[2])
    order = _numbers(iota[3]) if iota[3] else list(range(len(sizes)))
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    found = []
    for at in range(size):
        place = 0
        for axis in reversed(order):
            at, within = divmod(at, sizes[axis])
            place += within * steps[axis]
        found.append(place)
    return tuple(found)


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]
