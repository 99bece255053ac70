"""The ``out=`` overload of a composite kernel: compute, then write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fuse.trace.functional import find_overload, is_out


def out_overload(name: str) -> Any:
    """The ``out=`` overload with the arguments of ``name``, or ``None``."""
    wanted = [(a.name, str(a.type)) for a in find_overload(name)._schema.arguments]
    packet = getattr(torch.ops.aten, name.partition(".")[0])
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        plain = [(a.name, str(a.type)) for a in arguments if not is_out(a)]
        if len(plain) < len(arguments) and plain == wanted:
            return getattr(packet, overload)
    return None


def with_out(function: Callable[..., Any], overload: Any) -> Callable[..., Any]:
    """``function`` as the kernel of ``overload``: results go where ``out=`` says.

    A tensor of another size is resized, as PyTorch does. Raises ``RuntimeError`` where a
    result cannot be cast to its tensor's dtype.
    """
    names = [a.name for a in overload._schema.arguments if is_out(a)]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs.pop(name) for name in names]
        results = function(*args, **kwargs)
        results = [results] if isinstance(results, Tensor) else list(results)
        if len(outs) == 1 and isinstance(outs[0], (list, tuple)):
            outs = list(outs[0])
        for out, result in zip(outs, results, strict=True):
            if result is not None:
                _store(out, result)
        if not overload._schema.returns:
            return None
        return outs[0] if len(outs) == 1 else tuple(outs)

    return kernel


def _store(out: Tensor, result: Tensor) -> None:
    if not torch.can_cast(result.dtype, out.dtype):
        raise RuntimeError(
            f"result type {result.dtype} can't be cast to the desired output type {out.dtype}"
        )
    if out.shape != result.shape:
        _resize(out, result)
    out.copy_(result)


def _resize(out: Tensor, result: Tensor) -> None:
    """Give ``out`` the shape of ``result``; where it held nothing, its strides and memory too."""
    if out.numel() or result.is_contiguous():
        out.resize_(result.shape)
        return
    out.resize_(result.untyped_storage().nbytes() // result.element_size())
    out.as_strided_(result.shape, result.stride(), out.storage_offset())
