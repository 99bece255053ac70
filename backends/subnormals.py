"""Subnormal numbers, those too small for a leading digit, are zero to whatever computes.

TPUs know no others, XLA's CPU threads take them so, and the host's kernels and NumPy are told to:
a program gives one answer wherever it runs. Moving a number is not computing with it: what is only
copied may come back with its bits.
"""

from __future__ import annotations

import numpy as np
import torch

_SUBNORMAL = np.float32(1e-40)
_ONE = np.float32(1)


class FlushedSubnormals:
    """A block in which this thread, and threads that it starts, count them as zero: 1 us."""

    def __enter__(self) -> None:
        # PyTorch sets the thread's mode and does not tell it.
        self._before = bool(_SUBNORMAL * _ONE == 0)
        torch.set_flush_denormal(True)

    def __exit__(self, *_: object) -> None:
        torch.set_flush_denormal(self._before)
