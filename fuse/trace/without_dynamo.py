"""PyTorch's shape inference in Python, without the import of Dynamo that its first call makes.

The references of elementwise operators, ``torch._refs``, are wrapped by
``torch._disable_dynamo``, which imports ``torch._dynamo`` when such a reference is first called:
0.9 s and 60 MB at a program's first recorded addition, and an import that an interrupt can leave
half done. Until the device is registered with Dynamo the wrapped functions are called as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType

import torch._refs.linalg
import torch._refs.nn.functional
import torch._refs.special
from torch._decomp import global_decomposition_table

_MODULES = (torch._refs, torch._refs.linalg, torch._refs.nn.functional, torch._refs.special)
# Where the wrapper keeps what it calls: ``torch._compile._disable_dynamo``.
_KEPT = "__dynamo_disable"
_WRAPPER = torch._disable_dynamo(lambda: None).__code__


def _references() -> Iterator[object]:
    for table in ("meta", "post_autograd"):
        yield from global_decomposition_table[table].values()
    for module in _MODULES:
        yield from vars(module).values()


def _disabled() -> Iterator[FunctionType]:
    """Every function that ``_disable_dynamo`` wraps within a reference's layers of wrappers."""
    # Through the closures: `__wrapped__` is overwritten where a reference is named like its prim.
    layers, seen = [one for one in _references() if isinstance(one, FunctionType)], set[int]()
    while layers:
        layer = layers.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        cells = dict(zip(layer.__code__.co_freevars, layer.__closure__ or (), strict=True))
        found = [cell.cell_contents for name, cell in cells.items() if name == "fn"]
        inner = [one for one in found if isinstance(one, FunctionType)]
        if layer.__code__ is _WRAPPER:
            yield from inner
        layers.extend(inner)


def leave_out() -> None:
    """Call the references without Dynamo while it is not imported. 3 ms."""
    if "torch._dynamo" not in sys.modules:
        for function in _disabled():
            if not hasattr(function, _KEPT):
                setattr(function, _KEPT, function)


def let_in() -> None:
    """As PyTorch has it: from now on the references are calls that Dynamo leaves alone."""
    for function in _disabled():
        if getattr(function, _KEPT, None) is function:
            delattr(function, _KEPT)
