"""``fuse.to_jax`` and ``fuse.from_jax``: tensors as JAX arrays and back, without a copy."""

from __future__ import annotations

from typing import Any

import jax
import torch

from fuse.device import lazy, sharing
from fuse.errors import KernelError, describe
from fuse.kernels.host import to_numpy, to_tensor
from fuse.trace.source import user_line
from fuse.trace.spec import ITEMSIZE


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """The tensor's value as a JAX array of the same shape and dtype.

    A tensor of the device on XLA is not copied, unless it is a part of its memory or lies there in
    another order: the array is the one the device computes with. It never changes: where the tensor
    is written in place afterwards, it gets new memory. It may still be computing. Tensors of the
    CPU, and of the device on the NumPy backend, are copied.

    JAX without ``jax_enable_x64`` holds 64-bit arrays as they are, and computes with 32 bits.

    Args:
        tensor: of the device or the CPU, of any shape and of a dtype that JAX has.

    Returns:
        The array, on one device.

    Raises:
        RuntimeError: the tensor requires a gradient: autograd ends here.

    Example:
        ```python
        x = torch.ones(3, device="tpu")
        array = fuse.to_jax(x)
        x += 1
        print(array, x.tolist())  # [1. 1. 1.] [2.0, 2.0, 2.0]
        ```
    """
    if tensor.requires_grad:
        raise RuntimeError(
            "Can't call to_jax() on Tensor that requires grad, for gradients do not pass into "
            "JAX. Use fuse.to_jax(tensor.detach()), or make the function a fuse.kernel."
        )
    if tensor.device.type == "tpu":
        array = sharing.exported(tensor)
        if isinstance(array, jax.Array):
            return array
    else:
        array = to_numpy(tensor)
    with jax.enable_x64(True):
        # A copy: JAX would go on with the memory, which PyTorch may overwrite.
        made: jax.Array = jax.device_put(array.copy())
        return made


def from_jax(array: jax.Array, device: Any = "tpu") -> torch.Tensor:
    """The array's value as a tensor of the same shape and dtype, which requires no gradient.

    On the device and XLA it is not copied, if it lies on that device: the tensor's first write in
    place gives it new memory, so that the array never changes. For ``device="cpu"``, and on the
    NumPy backend, it is copied.

    Args:
        array: a ``jax.Array`` that has a value, on one device.
        device: where the tensor is to be; a string or ``torch.device``.

    Returns:
        The tensor, row-major.

    Raises:
        TypeError: it is no JAX array, or one that is being traced.
        KernelError: PyTorch lacks its dtype, or it is spread over several devices.

    Example:
        ```python
        import jax.numpy as jnp

        print(fuse.from_jax(jnp.arange(3)).device)  # tpu:0
        ```
    """
    if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array):
        raise TypeError(f"from_jax() takes a jax.Array that has a value, not {type(array)}")
    dtype, chosen = str(array.dtype), torch.device(device)
    what = f"PyTorch has no dtype {dtype}" if dtype not in ITEMSIZE else ""
    if not array.is_fully_addressable or len(array.devices()) > 1:
        what = f"the array is spread over {len(array.devices())} devices"
    if what:
        text = f"{dtype}{list(array.shape)}"
        raise KernelError(describe(what, operator="from_jax", operands=[text], source=user_line()))
    if chosen.type != "tpu":
        return to_tensor(jax.device_get(array)).to(chosen)
    index = chosen.index if chosen.index is not None else lazy.core().get_device()
    backend = lazy.engine().backend
    placed: Any = backend.adopted(array, index)
    return sharing.adopted(placed, getattr(torch, dtype), index)
