"""``torch.cond``, ``while_loop``, ``scan`` and ``map`` on the device: one operation each.

PyTorch's own implementation for any device makes every call of every round, and reads the
condition.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch._C import DispatchKey

OPERATORS = ("cond_op", "map_impl", "scan_op", "while_loop_op")


def extend(module: ModuleType) -> None:
    """Have the operator of one of these modules run on the device. Idempotent."""
    for name in OPERATORS:
        operator = vars(module).get(name)
        if operator is not None and DispatchKey.PrivateUse1 not in operator.py_kernels:
            dense = operator.py_kernels[DispatchKey.CompositeExplicitAutograd]
            operator.py_impl(DispatchKey.PrivateUse1)(functools.partial(_call, name, dense))


def _call(name: str, dense: Callable[..., Any], *args: Any) -> Any:
    # Loaded late: it imports JAX, and most programs have no such operator.
    found = getattr(importlib.import_module("fuse.kernels.control_flow"), name)(*args)
    return dense(*args) if found is None else found
