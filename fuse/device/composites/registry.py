"""The table of composite kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., object])
KERNELS: dict[str, Callable[..., object]] = {}
IMPLICIT: set[str] = set()
"""Kernels that autograd sees through: it differentiates their parts."""


def cpp_name(dtype: torch.dtype) -> str:
    """The name of a dtype in PyTorch's own error texts: ``Float`` for ``torch.float32``."""
    return torch.empty(0, dtype=dtype).type().removeprefix("torch.").removesuffix("Tensor")


WHOLE: set[str] = set()
"""Operators that PyTorch's CPU kernel runs where their call runs uncompiled."""
COMPOSED = "PrivateUse3"
"""The dispatch key under which those have what they are composed of (``kComposed`` of the core)."""


def kernel(*names: str) -> Callable[[Function], Function]:
    """Register a function as the device's kernel of these overloads; twice is an error."""

    def register(function: Function) -> Function:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"operator aten::{name} has two kernels")
            KERNELS[name] = function
        return function

    return register


def whole(*names: str) -> Callable[[Function], Function]:
    """``kernel`` for operators whose CPU kernel gives the same, but in one call."""
    WHOLE.update(names)
    return kernel(*names)


def implicit(*names: str) -> Callable[[Function], Function]:
    """``kernel`` for operators that PyTorch has no derivative of: views, mostly."""
    IMPLICIT.update(names)
    return kernel(*names)
