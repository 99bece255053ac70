"""The table of composite kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KERNELS: dict[str, Callable[..., Any]] = {}
IMPLICIT: set[str] = set()
"""Kernels that autograd sees through: it differentiates their parts."""


def kernel(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the device's kernel of these overloads; twice is an error."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"operator aten::{name} has two kernels")
            KERNELS[name] = function
        return function

    return register


def implicit(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``kernel`` for operators that PyTorch has no derivative of: views, mostly."""
    IMPLICIT.update(names)
    return kernel(*names)
