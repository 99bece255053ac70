"""Sparse tensors of the device: indices and values that lie there, in PyTorch's own classes.

PyTorch's structural code asks nothing of a device and is borrowed (borrowed.py); sums and products
are programs of recorded operations (programs.py); all else runs on the host (host.py).
"""

from __future__ import annotations

from fuse.device.sparse.borrowed import OF_DENSE
from fuse.device.sparse.host import on_host
from fuse.device.sparse.kernels import register

__all__ = ["OF_DENSE", "on_host", "register"]
