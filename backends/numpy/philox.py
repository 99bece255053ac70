"""Philox4x32-10, a counter-based random number generator, in NumPy.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), whose
figure 4 and section 3.3 give the rounds and constants. A 128-bit counter and a 64-bit key give
four 32-bit words that depend on nothing else. Here the key is the seed, and the counter the
generator's offset plus a block's number, in its low 64 bits; its high 64 bits are zero, but where
an element is drawn again.
"""

from __future__ import annotations

import numpy as np

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def blocks(seed: int, offset: int, count: int, attempt: int = 0) -> np.ndarray:
    """The words of ``count`` consecutive counter blocks from ``offset``: uint32[count, 4].

    The counter wraps around at 2**64; ``attempt`` is its third word.
    """
    counter = np.arange(count, dtype=np.uint64) + np.uint64(offset)
    c0, c1 = counter & _LOW, counter >> _HALF
    c2, c3 = np.full_like(counter, attempt), np.zeros_like(counter)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(_ROUNDS):
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (right >> _HALF) ^ c1 ^ np.uint64(k0), (left >> _HALF) ^ c3 ^ np.uint64(k1)
        c1, c3 = right & _LOW, left & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) % 2**32, (k1 + _KEY_STEPS[1]) % 2**32
    return np.stack((c0, c1, c2, c3), axis=-1).astype(np.uint32)


def words(seed: int, offset: int, count: int) -> np.ndarray:
    """``count`` consecutive words, block after block: uint32[count]."""
    return blocks(seed, offset, -(-count // 4)).reshape(-1)[:count]


def words64(seed: int, offset: int, count: int) -> np.ndarray:
    """``count`` consecutive pairs of words, the first in the low half: uint64[count]."""
    return _paired(words(seed, offset, 2 * count).reshape(-1, 2))


def pairs(seed: int, offset: int, count: int, attempt: int) -> tuple[np.ndarray, np.ndarray]:
    """A whole block for each element, as two pairs of words: uint64[count] twice.

    Element ``i`` has block ``offset + i``, and another one for each ``attempt`` below 2**32.
    """
    lanes = blocks(seed, offset, count, attempt)
    return _paired(lanes[:, :2]), _paired(lanes[:, 2:])


def _paired(halves: np.ndarray) -> np.ndarray:
    halves = halves.astype(np.uint64)
    return halves[:, 0] | (halves[:, 1] << _HALF)
