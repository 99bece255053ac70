"""What each query of an attention sees, where that is known while a program is compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from fuse.backends.xla.platform import Attention


@dataclass(frozen=True)
class Mask:
    """The keys that each query sees, the same for all heads and samples.

    Attributes:
        queries, keys: how many there are.
        causal: whether query ``i`` sees keys up to ``i`` only.
        packed: another mask, which has ``causal`` in it, a bit a pair: kernels keep their masks.
    """

    queries: int
    keys: int
    causal: bool = False
    packed: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, seen: np.ndarray[Any, Any]) -> Mask:
        """That of booleans ``[queries, keys]``."""
        queries, keys = seen.shape
        return cls(queries, keys, packed=np.packbits(seen).tobytes())

    def seen(self) -> np.ndarray[Any, Any] | None:
        """The booleans it is of; ``None``: it is causal, or everything is seen."""
        if not self.packed:
            return None
        bits = np.frombuffer(self.packed, np.uint8)
        flat = np.unpackbits(bits, count=self.queries * self.keys)
        return flat.view(np.bool_).reshape(self.queries, self.keys)

    def blocks(self, rows: int, columns: int) -> int:
        """Blocks of that size which have something to be seen; sizes divide the lengths."""
        seen = self.seen()
        if seen is not None:
            grid = (self.queries // rows, rows, self.keys // columns, columns)
            return int(seen.reshape(grid).any((1, 3)).sum())
        starts = range(0, self.queries, rows)
        across = self.keys // columns
        return sum(-(-(at + rows) // columns) if self.causal else across for at in starts)


def mask_of(asked: Attention) -> Mask | None:
    """What a call sees, where its bias says that alone and is the same in every run.

    ``None`` as well where heads or samples see different keys, or a query sees none: its output
    is zero by definition, and kernels do not write what they do not compute.
    """
    queries, keys = asked.query.shape[2], asked.key.shape[2]
    if asked.bias is None:
        return Mask(queries, keys, asked.causal)
    known = asked.constant()
    seen = None if known is None else _seen(known)
    if seen is None:
        return None
    each = seen.reshape(-1, *seen.shape[-2:])
    if not (each == each[:1]).all():
        return None
    one = np.broadcast_to(each[0], (queries, keys))
    if asked.causal:
        one = np.tril(one)
    if not one.any(1).all():
        return None
    return Mask.of(one)


def _seen(bias: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """A bias as booleans: zeros and minus infinity, or the least number, which weighs nothing."""
    bias = np.atleast_2d(bias)
    if bias.dtype == np.bool_:
        return bias
    seen = bias == 0
    # Any: ml_dtypes declares NumPy's numbers, which bfloat16 is none of.
    limits: Any = ml_dtypes.finfo
    return seen if (seen | (bias <= limits(bias.dtype).min)).all() else None
