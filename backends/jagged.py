"""What rules of sequences that lie behind one another know alike, whichever backend has them."""

from __future__ import annotations

import math

import numpy as np


def padding(number: float, dtype: str) -> float:
    """What stands for a number in padding of ``dtype``: for infinity the extreme integer."""
    if "int" not in dtype or not math.isinf(number):
        return number
    limits = np.iinfo(dtype)
    return int(limits.max if number > 0 else limits.min)
