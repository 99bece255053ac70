"""``torch.cond``, ``while_loop``, ``scan`` and ``map`` on the device: one operation each.

PyTorch's own implementation for any device makes every call of every round, and reads the
condition.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from torch._C import DispatchKey

OPERATORS = {
    "cond.cond_op": 4,
    "map.map_impl": 3,
    "scan.scan_op": 4,
    "while_loop.while_loop_op": 4,
}
"""Where they are, and how many arguments are read; what a version passes beside them is empty."""


def extend() -> None:
    """Have the operators run on the device. Idempotent."""
    for name in OPERATORS:
        module, _, attribute = name.partition(".")
        # PyTorch has imported those that its version has.
        operator = getattr(sys.modules.get(f"torch._higher_order_ops.{module}"), attribute, None)
        if operator is None or DispatchKey.PrivateUse1 in operator.py_kernels:
            continue
        dense = operator.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
        if dense is not None:
            operator.py_impl(DispatchKey.PrivateUse1)(functools.partial(_call, name, dense))


def _call(name: str, dense: Callable[..., Any], *args: Any, **options: Any) -> Any:
    read = OPERATORS[name]
    if not any((*args[read:], *options.values())):
        # Loaded late: it imports JAX, and most programs have no such operator.
        flows = importlib.import_module("fuse.kernels.control_flow")
        run = getattr(flows, name.partition(".")[2])
        found = run(*args[:read])
        if found is not None:
            return found
    return dense(*args, **options)
