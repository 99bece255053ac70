"""The table of XLA rules: functional ATen overload -> a function that emits JAX operations.

A rule is called while a chunk is traced. It receives a ``RuleContext`` and the
operator's arguments exactly as the ATen schema orders them, defaults filled in:
positional arguments by position, keyword-only arguments by name. Of these,

* a tensor is a ``jax.Array`` tracer of the tensor's logical shape and exact dtype
  (a Python number that PyTorch wrapped into a tensor is a 0-d array of float64,
  int64, bool or complex128);
* ``Tensor?`` may be ``None``; ``Tensor[]`` is a list;
* ``Scalar`` and ``float`` are Python numbers, or a 0-d float64/int64 array once their place
  has become a dynamic scalar (a rule that needs the number while tracing declares so
  with ``static``);
* ``ScalarType`` is the dtype's name, ``int[]`` a tuple, ``str`` a str;
* ``layout``, ``device``, ``pin_memory``, ``memory_format`` and ``generator`` are
  dropped, and so is ``out``.

It returns one array a schema result (a tuple where there are several, a list for
``Tensor[]``, ``None`` for an undefined tensor). The shape must be ``ctx.out[k].shape``;
the dtype is converted to ``ctx.out[k].dtype`` by the emitter. 64-bit types are on
while rules run. In-place and ``out=`` overloads have no rules of their own: the
emitter calls the functional rule and writes the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from fuse.backends.context import Result, Rule
from fuse.backends.xla.rules.context import Number, RuleContext
from fuse.trace.node import Node

Made = TypeVar("Made", bound=Rule)
MayRefuse = Callable[[Node], bool]

RULES: dict[str, Rule] = {}
STATIC_SCALARS: dict[str, frozenset[str]] = {}
DOUBLES: set[str] = set()
"""Operators whose numbers that vary are float64 everywhere: rounded to float32, too much is lost
in what is made of them."""
MAY_REFUSE: dict[str, MayRefuse] = {}
"""Whether the rule, which computes most calls of plain dtypes, may refuse this one: it is traced
before the call is recorded. The rules of all other operators refuse none."""


class Unsupported(Exception):
    """Raised by a rule for arguments it cannot express; the operator then runs on the host.

    Raise it before emitting anything, from shapes, dtypes and attributes alone, and say at the
    rule's registration which calls it may be raised for.
    """


def always(node: Node) -> bool:
    """May refuse any call."""
    return True


def of_integers(node: Node) -> bool:
    """May refuse calls that write no floating-point numbers."""
    made = [output.view.dtype for output in node.outputs]
    made += [write.view.dtype for write in node.writes]
    return not all("float" in dtype for dtype in made)


def of_masks(node: Node) -> bool:
    """May refuse calls that read truth values or bytes, which select as indices."""
    return any(operand.view.dtype in ("bool", "uint8") for operand in node.operands)


def rule(
    *overloads: str,
    static: tuple[str, ...] = (),
    refuse: Callable[..., str | None] | None = None,
    doubles: bool = False,
    may_refuse: MayRefuse | None = None,
) -> Callable[[Made], Made]:
    """Register one function for ATen overloads such as ``"add.Tensor"`` or ``"relu"``.

    An overload called ``default`` is written without it. ``static`` names Scalar
    arguments (or wrapped-number tensor arguments) that must stay Python numbers. ``refuse`` takes
    the rule's own arguments and returns why it does not cover them, or ``None``. ``doubles``
    puts the overloads into ``DOUBLES``, ``may_refuse`` into ``MAY_REFUSE``, as ``refuse`` does.
    Registering an overload twice raises ``ValueError``.
    """

    def register(function: Made) -> Made:
        for name in overloads:
            if name in RULES:
                raise ValueError(f"operator aten::{name} has two XLA rules")
            RULES[name] = function if refuse is None else _refusing(function, refuse)
            if may_refuse is not None or refuse is not None:
                MAY_REFUSE[name] = may_refuse or always
            if static:
                STATIC_SCALARS[name] = frozenset(static)
            if doubles:
                DOUBLES.add(name)
        return function

    return register


def _refusing(function: Rule, refuse: Callable[..., str | None]) -> Rule:
    @functools.wraps(function)
    def checked(*arguments: Any, **keywords: Any) -> Result:
        reason = refuse(*arguments, **keywords)
        if reason is not None:
            raise Unsupported(reason)
        return function(*arguments, **keywords)

    return checked


__all__ = [
    "DOUBLES",
    "MAY_REFUSE",
    "RULES",
    "STATIC_SCALARS",
    "Number",
    "Rule",
    "RuleContext",
    "Unsupported",
    "rule",
]
