"""The device's tensors as arrays that others read, and arrays of others as tensors.

Nothing is copied where a tensor is all of its memory in row-major order. The array is then never
overwritten: a tensor that is written in place gets other memory, and the array keeps its value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fuse.device.started import device
from fuse.errors import FuseError, describe
from fuse.trace.source import user_line


def exported(tensor: torch.Tensor) -> Any:
    """The backend's array of a tensor of the device: ``jax.Array`` on XLA, ``np.ndarray`` on NumPy.

    Its shape and dtype are the tensor's. It may still be computing. Cuts where the value is
    pending. What is a part of its memory, or in another order there, is copied on the device.
    """
    core, engine = device().core, device().engine
    backend = engine.backend
    plain = tensor.detach().resolve_conj().resolve_neg()
    found = core.share(plain)
    if found is None:
        found = core.share(plain.clone(memory_format=torch.contiguous_format))
    if found is None:  # without elements there is nothing to copy
        dtype = str(tensor.dtype).removeprefix("torch.")
        found = backend.put(np.zeros(tuple(tensor.shape), dtype), tensor.device.index or 0)
    if not backend.owns(found):  # from before a change of the backend
        found = backend.put(engine.arrays.read(found), tensor.device.index or 0)
    array = backend.exported(found)
    return array if array.shape == tuple(tensor.shape) else array.reshape(tuple(tensor.shape))


def adopted(array: Any, dtype: torch.dtype, index: int) -> torch.Tensor:
    """A tensor of the device whose value is an array of the backend, which others may hold too."""
    return device().core.adopt(array, dtype, tuple(array.shape), index)


def register() -> None:
    """Have ``Tensor.__dlpack__`` give out the backend's array for tensors of the device."""
    if not hasattr(torch.Tensor.__dlpack__, "of_fuse"):
        _replace("__dlpack__", _dlpack)
        _replace("__dlpack_device__", _dlpack_device)
        to_dlpack = _to_dlpack(torch._C._to_dlpack)
        torch.to_dlpack = torch.utils.dlpack.to_dlpack = to_dlpack  # type: ignore[assignment]


def _replace(name: str, ours: Callable[..., Any]) -> None:
    plain = getattr(torch.Tensor, name)

    def method(self: torch.Tensor, **options: Any) -> Any:
        return ours(self, **options) if self.device.type == "tpu" else plain(self, **options)

    method.__doc__, method.of_fuse = plain.__doc__, True  # type: ignore[attr-defined]
    setattr(torch.Tensor, name, method)


def _dlpack(tensor: torch.Tensor, **options: Any) -> Any:
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if options.get("stream") == -1:
        options["stream"] = None  # PyTorch's word for no synchronisation, which is not JAX's
    return _library_array(tensor).__dlpack__(**options)


def _to_dlpack(own: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """PyTorch's older function, which gives out an address that a tensor of the device has not."""

    @functools.wraps(own)
    def to_dlpack(tensor: torch.Tensor) -> Any:
        return tensor.__dlpack__() if tensor.device.type == "tpu" else own(tensor)

    return to_dlpack


def _dlpack_device(tensor: torch.Tensor) -> tuple[int, int]:
    kind, index = _library_array(tensor).__dlpack_device__()
    return int(kind), int(index)


def _library_array(tensor: torch.Tensor) -> Any:
    array = exported(tensor)
    try:
        array.__dlpack_device__()
    except Exception as error:
        text = describe(
            f"DLPack knows no memory of this platform: {error}",
            operator="Tensor.__dlpack__",
            operands=[f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"],
            source=user_line(),
            hint="fuse.to_jax(tensor) shares it with JAX; tensor.cpu() copies it",
        )
        raise FuseError(text) from error
    return array
