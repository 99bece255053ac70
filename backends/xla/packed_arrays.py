"""Packed arrays, rows of a stack: how small results come out of a chunk, and go into the next.

A ``Row`` stands for an array wherever the engine keeps one. Where a chunk takes a stack, the rows
of one are its argument as it is; anything else is put together first. Where a chunk takes an
array, a row is taken out first. Both copies are made by the host while they are rare and the
arrays are there, else by an executable.
"""

from __future__ import annotations

from collections import Counter
from itertools import repeat
from typing import Final, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

RARE: Final = 2
"""Copies of one form made by the host before an executable is compiled for it (15 ms)."""


class Stack:
    """An array and, once one of them was needed alone, its rows as arrays."""

    __slots__ = ("array", "parts")

    def __init__(self, array: jax.Array) -> None:
        self.array = array
        self.parts: list[jax.Array] | None = None


@final
class Row(tuple[Stack, int]):
    """A stack and a row's number: a plain pair, 0.1 us, where an object takes thrice as long."""

    __slots__ = ()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """The row on the host, read-only; waits for it."""
        stack, at = self
        return np.array(np.asarray(stack.array)[at, ...], dtype=dtype, copy=copy)


Part = jax.Array | Row
"""What stands for an array in the engine."""


def rows_of(array: jax.Array, count: int) -> list[Row]:
    """All ``count`` rows of a new stack."""
    return list(map(Row, zip(repeat(Stack(array)), range(count), strict=False)))


class PackedArrays:
    """Puts stacks together and takes them apart. One a backend.

    ``on_host`` where the arrays lie in the host's memory.
    """

    def __init__(self, on_host: bool) -> None:
        self._on_host = on_host
        self._copied: Counter[object] = Counter()

    def joined(self, parts: tuple[Part, ...]) -> jax.Array:
        """The arrays or rows ``parts``, of one shape and dtype, as one array."""
        count = len(parts)
        first = parts[0]
        if type(first) is Row and {*map(type, parts)} == {Row}:
            stack = first[0]
            whole = stack.array
            rows = zip(repeat(stack), range(count), strict=False)
            if whole.shape[0] == count and tuple(rows) == parts:  # 40 ns a row
                return whole
        arrays = list(map(self.array, parts))
        with jax.enable_x64(True):
            rare = self._rare((count, arrays[0].shape, arrays[0].dtype))
            made: jax.Array = jax.device_put(np.stack(arrays)) if rare else _stack(arrays)
        return made

    def array(self, part: Part) -> jax.Array:
        """``part`` as an array, taken out of its stack where it is a row."""
        if type(part) is not Row:
            return part
        stack, at = part
        if stack.parts is None:
            with jax.enable_x64(True):
                if self._rare((stack.array.shape, stack.array.dtype)):
                    rows = np.array(stack.array)  # a copy: what is made of it may be overwritten
                    stack.parts = [jax.device_put(row) for row in rows]
                else:
                    stack.parts = _unstack(stack.array)
        return stack.parts[at]

    def _rare(self, form: object) -> bool:
        self._copied[form] += 1
        return self._on_host and self._copied[form] <= RARE


@jax.jit
def _stack(arrays: list[jax.Array]) -> jax.Array:
    return jnp.stack(arrays)


@jax.jit
def _unstack(array: jax.Array) -> list[jax.Array]:
    return list(array)
