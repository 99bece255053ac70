"""Dtypes that PyTorch's CPU kernels refuse although its shape inference lets them pass.

The rounding of complex numbers, the softmax of integers: the kernel itself is asked, with one
element of each operand, once for each operator and its dtypes. Floating-point numbers, which nearly
all calls are of, are not asked about: what the CPU refuses of them shape inference refuses too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuse.trace.bind import bind
from fuse.trace.functional import base_name, find_overload
from fuse.trace.node import DtypeArg, HostArg, Node, NumberArg, Operand, TensorArg
from fuse.trace.spec import View

OTHERS = frozenset({"_log_softmax", "_softmax"})
"""Operators that are asked about beside the pointwise ones."""
_answers: dict[tuple[Any, ...], str | None] = {}


def read(node: Node) -> list[Operand]:
    """The operands that are arguments of the functional overload: not those of ``out=``."""
    positional, keyword = bind(node)
    arguments: list[Any] = [*positional, *keyword.values()]
    found = []
    while arguments:
        value = arguments.pop()
        if isinstance(value, tuple):
            arguments += value
        elif isinstance(value, TensorArg):
            found.append(node.operands[value.index])
    return found


def _stand_in(node: Node, value: Any, make: Callable[[View], torch.Tensor]) -> Any:
    """An argument of ``node`` as PyTorch takes it, its tensors made by ``make``."""
    if isinstance(value, TensorArg):
        return make(node.operands[value.index].view)
    if isinstance(value, HostArg):
        return torch.tensor(value.number, dtype=getattr(torch, value.dtype))
    if isinstance(value, NumberArg):
        return value.number
    if isinstance(value, DtypeArg):
        return getattr(torch, value.name)
    if isinstance(value, tuple):
        return [_stand_in(node, item, make) for item in value]
    return value


def call(node: Node, make: Callable[[View], torch.Tensor]) -> Any:
    """What PyTorch's functional overload gives for ``node``'s arguments, its tensors ``make``'s."""
    positional, keyword = bind(node)
    return find_overload(node.target)(
        *(_stand_in(node, value, make) for value in positional),
        **{name: _stand_in(node, value, make) for name, value in keyword.items()},
    )


def refused_dtype(node: Node) -> str | None:
    """Why PyTorch's CPU kernel refuses the operands' dtypes, or ``None``."""
    if all("float" in operand.view.dtype for operand in node.operands):
        return None
    tags = find_overload(node.target).tags
    if torch.Tag.nondeterministic_seeded in tags:  # asking would draw from the host's generator
        return None
    if torch.Tag.pointwise not in tags and base_name(node.target) not in OTHERS:
        return None
    dtypes = tuple(operand.view.dtype for operand in read(node))
    key = (node.target, dtypes, tuple(map(type, node.args)))
    if key not in _answers:
        _answers[key] = _ask(node)
    return _answers[key]


def _one(view: View) -> torch.Tensor:
    return torch.ones((1,) * len(view.shape), dtype=getattr(torch, view.dtype))


def _ask(node: Node) -> str | None:
    try:
        call(node, _one)
    except RuntimeError as error:
        text = str(error)
        said = isinstance(error, NotImplementedError) or "not implemented" in text
        # What else goes wrong with one element says nothing about the call.
        return text if said or "not supported" in text else None
    return None
