"""Shape inference for ``out=`` overloads that PyTorch has no meta kernel for.

The functional overload of the same arguments says what the results are; a tensor of another
size is resized to hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import wrappers

from fuse.trace.functional import find_overload, is_out

_FUNCTIONAL = {
    "_logcumsumexp.out": "_logcumsumexp",
    "_native_batch_norm_legit.no_stats_out": "_native_batch_norm_legit.no_stats",
    "_scaled_mm.out": "_scaled_mm",
    "_scaled_mm_v2.out": "_scaled_mm_v2",
    "geqrf.a": "geqrf",
}


def _inference(name: str, functional: str) -> Callable[..., object]:
    names = [a.name for a in find_overload(name)._schema.arguments if is_out(a)]

    def infer(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs.pop(name) for name in names]
        results = find_overload(functional)(*args, **kwargs)
        results = (results,) if isinstance(results, torch.Tensor) else results
        for out, result in zip(outs, results, strict=True):
            if out.shape != result.shape:
                out.resize_(result.shape)
                out.as_strided_(result.shape, result.stride())
        return outs[0] if len(outs) == 1 else tuple(outs)

    return infer


TABLE: dict[str, Callable[..., object]] = {
    name: _inference(name, functional) for name, functional in _FUNCTIONAL.items()
}


def speak_unless(infers: Callable[[], bool]) -> None:
    """Have PyTorch's inference in Python warn of a resized ``out=`` only where ``infers`` is false.

    The recorder infers on tensors of its own, and each call warns for itself.
    """
    check = wrappers._resize_output_check
    if hasattr(check, "fuse_infers"):
        return

    def checked(out: torch.Tensor, shape: Any) -> bool:
        return tuple(out.shape) != tuple(shape) if infers() else bool(check(out, shape))

    checked.fuse_infers = infers  # type: ignore[attr-defined]
    wrappers._resize_output_check = checked
