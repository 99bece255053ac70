"""Repeated segments of a stream: layers, time steps, micro-batches.

Works on tokens, one an operation, equal where the operations are equal up to value
numbers. A tandem repeat is a stretch in which a block of ``period`` tokens comes at least
twice in a row; it is found by comparing the stream with itself shifted by the period, with
prefix hashes to compare stretches of any length in constant time (Karp and Rabin, 1987).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

_BASE, _MODULUS = 1_000_003, (1 << 61) - 1  # a Mersenne prime: collisions about 1 in 2**61
_CANDIDATES = 12  # shifts tried at a position: the next occurrences of its token


@dataclass(frozen=True, slots=True)
class Repeat:
    """``count`` equal blocks of ``period`` operations from ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """One past the last operation of the last block."""
        return self.start + self.period * self.count


class _Hashes:
    """Prefix hashes of a token sequence."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._sums, self._powers = [0], [1]
        for token in tokens:
            self._sums.append((self._sums[-1] * _BASE + token + 1) % _MODULUS)
            self._powers.append(self._powers[-1] * _BASE % _MODULUS)
        self._length = len(tokens)

    def of(self, start: int, stop: int) -> int:
        """Hash of ``tokens[start:stop]``."""
        return (self._sums[stop] - self._sums[start] * self._powers[stop - start]) % _MODULUS

    def common(self, first: int, second: int) -> int:
        """How many tokens agree from ``first`` and ``second`` (the later one) on."""
        low, high = 0, self._length - second
        while low < high:
            middle = (low + high + 1) // 2
            if self.of(first, first + middle) == self.of(second, second + middle):
                low = middle
            else:
                high = middle - 1
        return low


def find_repeats(tokens: Sequence[int], smallest: int = 8) -> list[Repeat]:
    """Return disjoint tandem repeats in order, each block at least ``smallest`` operations.

    Greedy from the left: at each position the shift that covers most is taken, the shorter
    period where two cover the same. Blocks shorter than ``smallest`` are joined until they
    are not, so that every block is worth an executable of its own; as many of them as leave
    the fewest operations over, which would be one more executable.
    """
    hashes = _Hashes(tokens)
    places: dict[int, list[int]] = defaultdict(list)
    for position, token in enumerate(tokens):
        places[token].append(position)
    rank = {p: index for positions in places.values() for index, p in enumerate(positions)}
    found: list[Repeat] = []
    position = 0
    while position < len(tokens):
        best = _best_at(position, tokens, places, rank, hashes, smallest)
        if best is None:
            position += 1
            continue
        found.append(best)
        position = best.stop
    return found


def _best_at(
    position: int,
    tokens: Sequence[int],
    places: dict[int, list[int]],
    rank: dict[int, int],
    hashes: _Hashes,
    smallest: int,
) -> Repeat | None:
    best: Repeat | None = None
    same = places[tokens[position]]
    following = same[rank[position] + 1 : rank[position] + 1 + _CANDIDATES]
    for other in following:
        period = other - position
        reach = hashes.common(position, other) + period
        fewest = -(-smallest // period)
        for joined in range(fewest * period, 2 * fewest * period, period):
            count = reach // joined
            if count < 2:
                break
            candidate = Repeat(position, joined, count)
            if best is None or candidate.stop - candidate.start > best.stop - best.start:
                best = candidate
    return best
