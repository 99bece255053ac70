"""How far each random operator moves the generator: blocks of four 32-bit Philox words.

The recorder calls ``blocks`` when it records a random operator, hands the generator's
(seed, offset) to that operator and advances the offset by the answer. The answer may
depend on nothing but the operator and its sizes, or modes and backends would drift apart.
"""

from __future__ import annotations

from fuse.trace.operators import operator


def is_random(op: str) -> bool:
    """Whether an ATen operator, with or without overload, is drawn on the device."""
    return operator(op).draws is not None


def blocks(op: str, numel: int) -> int:
    """Number of counter blocks that one call of ``op`` uses up.

    One block an element: its 128 bits are what an element of the widest dtype
    (complex128, two 53-bit draws) takes. Narrower dtypes leave bits unused, which costs
    nothing: only the words that are used are computed, and 2**64 blocks are there.

    Args:
        op: ATen name such as ``"uniform_"`` or ``"aten::normal.Tensor_float"``.
        numel: the largest number of elements among the operator's tensor operands and
            results (``multinomial`` draws for either, whichever is larger).

    Raises:
        KeyError: the operator is not drawn from (seed, offset).
    """
    if not is_random(op):
        raise KeyError(f"{op} does not draw from the device's generator")
    return numel
