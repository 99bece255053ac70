"""Gives PyTorch's CPU the operators that it lacks and the device records."""

from __future__ import annotations

import torch

from fuse.device import host_attention, host_cells, host_gaps


def register() -> torch.library.Library:
    """Hand the kernels to PyTorch; they last as long as the returned library."""
    library = torch.library.Library("aten", "IMPL", "CPU")
    for table in (host_attention.KERNELS, host_cells.KERNELS, host_gaps.KERNELS):
        for name, kernel in table.items():
            library.impl(name, kernel)
    return library
