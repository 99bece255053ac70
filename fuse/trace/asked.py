"""What PyTorch's CPU kernels refuse although its shape inference lets it pass: the kernel is asked.

It is called with zeros, or ones where it may divide, of the operands' shapes if they are small and
of short dimensions otherwise, before the call is first described. Asked about are

- dtypes that are no floating-point numbers: the rounding of complex numbers, products of booleans.
  Of floating-point numbers, which nearly all calls are of, shape inference refuses what the CPU
  does, but for halves, which accelerators know better than its kernels;
- operands without elements or without dimensions: the maximum of nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuse.trace.bind import bind
from fuse.trace.functional import base_name, find_overload
from fuse.trace.node import DtypeArg, HostArg, Node, NumberArg, Operand, TensorArg
from fuse.trace.spec import View

SMALL = 4096
"""Elements of operands and results up to which a call is asked about with its own shapes."""
MOST_ZEROS = 1 << 20
"""The same where there is an operand without elements, which has no other way to be asked about."""
FEW = 8
"""The longest dimension that a call of more is asked about with."""
UNASKED = frozenset({"linalg_ldl_solve", "linalg_lu_solve", "lu_solve", "lu_unpack", "histc"})
"""Operators that are not asked: of pivots that do not come from a factorisation anything comes; and
PyTorch's accelerators count integers, as transformers' experts do there, where its CPU does not."""
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


def call(
    node: Node, make: Callable[[View], torch.Tensor], overload: Any = None, **more: Any
) -> Any:
    """What PyTorch's functional overload gives for ``node``'s arguments, its tensors ``make``'s.

    Or what ``overload`` gives, which takes the same; ``more`` are keyword arguments beside them.
    """
    positional, keyword = bind(node)
    return (overload or find_overload(node.target))(
        *(_stand_in(node, value, make) for value in positional),
        **{name: _stand_in(node, value, make) for name, value in keyword.items()},
        **more,
    )


def refused(node: Node) -> str | None:
    """Why PyTorch's CPU kernel refuses the operands' dtypes or shapes, or ``None``."""
    # Another library's operator may do more than compute.
    if "::" in node.target or base_name(node.target) in UNASKED:
        return None
    operands = read(node)
    numel = sum(view.numel for view in (*(o.view for o in operands), *_results(node)))
    if any(not operand.view.numel for operand in operands):
        return _say(_error(node, _own)) if numel <= MOST_ZEROS else None
    small = numel <= SMALL
    if small and not _pointwise(node) and any(not operand.view.shape for operand in operands):
        return _say(_error(node, _own))
    dtypes = _dtypes(node, operands)
    if all("float" in name for name in dtypes):
        return None
    if small:
        return _ask(node, _own)
    if len({operand.view.dtype for operand in operands}) > 1 and not _pointwise(node):
        return None  # some are sizes or indices, and with other sizes anything may be wrong
    key = (node.target, *dtypes, *map(type, node.args))
    if key not in _answers:
        _answers[key] = _ask(node, _fewer)
    return _answers[key]


def _results(node: Node) -> list[View]:
    return [*(output.view for output in node.outputs), *(write.view for write in node.writes)]


def _pointwise(node: Node) -> bool:
    tags = find_overload(node.target).tags
    return torch.Tag.pointwise in tags or base_name(node.target) == "floor_divide"  # lacks it


def _dtypes(node: Node, operands: list[Operand]) -> tuple[str, ...]:
    """Those of the operands, and what the arguments name."""
    named = (argument.name for argument in node.args if isinstance(argument, DtypeArg))
    return (*(operand.view.dtype for operand in operands), *named)


def _say(error: Exception | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"


def _own(node: Node, view: View) -> torch.Tensor:
    # Zeros are indices of whatever has an element, and no numbers to divide by.
    filled = torch.ones if _pointwise(node) else torch.zeros
    return filled(view.shape, dtype=getattr(torch, view.dtype))


def _fewer(node: Node, view: View) -> torch.Tensor:
    # Sizes that were equal stay so, and what broadcasts does.
    shape = tuple(min(size, FEW) for size in view.shape)
    return _own(node, View(view.dtype, shape, view.strides, 0))


def _error(
    node: Node, make: Callable[[Node, View], torch.Tensor], instead: str = ""
) -> Exception | None:
    """What the kernel raises, but that there is none; ``instead`` is a dtype made float32."""
    overload = find_overload(node.target.removesuffix("_overrideable"))
    if overload is None:
        return None  # an operator of devices alone, which the CPU has under no name
    drawn: dict[str, Any] = {}
    if any(argument.name == "generator" for argument in overload._schema.arguments):
        drawn["generator"] = torch.Generator()
    elif torch.Tag.nondeterministic_seeded in overload.tags:
        return None  # asking would draw from the host's generator

    def stand_in(view: View) -> torch.Tensor:
        made = make(node, view)
        if view.dtype != instead:
            return made
        return (made.real if made.is_complex() else made).float()  # a cast would warn

    try:
        call(node, stand_in, overload, **drawn)
    except NotImplementedError as error:
        return None if "Could not run" in str(error) or "overrideable" in str(error) else error
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return error
    return None


def _ask(node: Node, make: Callable[[Node, View], torch.Tensor]) -> str | None:
    """What it raises because of its dtypes: what it says so of, or does not of another dtype."""
    error = _error(node, make)
    if error is None:
        return None
    if isinstance(error, NotImplementedError) or "support" in str(error):
        return _say(error)
    others = {operand.view.dtype for operand in read(node) if "float" not in operand.view.dtype}
    return _say(error) if any(_error(node, make, dtype) is None for dtype in others) else None
