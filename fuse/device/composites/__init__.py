"""Operators as programs of recorded operations, where a rule of a backend cannot be one.

Most have results whose size is data: they count on the device, read one number on the host,
and then run with fixed shapes. They are kernels of the device like any other: autograd stays
PyTorch's, and every backend runs them.
"""

from __future__ import annotations

import torch

import fuse.device.composites.assertion
import fuse.device.composites.attention
import fuse.device.composites.compressed_indices
import fuse.device.composites.convolution
import fuse.device.composites.counting
import fuse.device.composites.dirichlet
import fuse.device.composites.embedding_bag
import fuse.device.composites.histogram
import fuse.device.composites.kaiser
import fuse.device.composites.least_squares
import fuse.device.composites.segment
import fuse.device.composites.split
import fuse.device.composites.strided
import fuse.device.composites.synchronised_norm
import fuse.device.composites.transformer
import fuse.device.composites.unique
import fuse.device.composites.varlen_attention  # noqa: F401
from fuse.device.composites.out import out_overload, with_out
from fuse.device.composites.registry import COMPOSED, IMPLICIT, KERNELS, WHOLE
from fuse.device.started import device
from fuse.trace.functional import overload_name


def register() -> tuple[torch.library.Library, ...]:
    """Hand the kernels to PyTorch; they last as long as the returned libraries."""
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    autograd = torch.library.Library("aten", "IMPL", "AutogradPrivateUse1")
    composed = torch.library.Library("aten", "IMPL", COMPOSED)
    for name, function in KERNELS.items():
        (composed if name in WHOLE else library).impl(name, function)
        if name in IMPLICIT:
            autograd.impl(name, function)
        overload = out_overload(name)
        if overload is not None:
            library.impl(overload_name(overload), with_out(function, overload))
    device().core.register_whole_kernels(sorted(WHOLE))
    return library, composed, autograd


__all__ = ["KERNELS", "register"]
