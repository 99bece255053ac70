"""The table of NumPy rules: functional ATen overload -> the function that defines it.

A rule receives a ``RuleContext`` and the operator's arguments exactly as the ATen schema
orders them, defaults filled in: positional arguments by position, keyword-only arguments
by name. Of these,

* a tensor is an ``np.ndarray`` of the tensor's logical shape and exact dtype (a Python
  number that PyTorch wrapped into a tensor is a 0-d array of float64, int64, bool or
  complex128). It may have any strides, and a rule never writes to it;
* ``Tensor?`` may be ``None``; ``Tensor[]`` is a list;
* ``Scalar`` is a Python number; ``ScalarType`` is the dtype's name, ``int[]`` a tuple,
  ``str`` a str;
* ``layout``, ``device``, ``pin_memory``, ``memory_format`` and ``generator`` are dropped,
  and so is ``out``.

It returns one array a schema result (a tuple where there are several, a list for
``Tensor[]``, ``None`` for an undefined tensor), which may be a view of an operand. The
shape must be ``ctx.out[k].shape``; the dtype is converted to ``ctx.out[k].dtype`` by the
interpreter. NumPy's floating-point warnings are off while rules run. In-place and ``out=``
overloads have no rules of their own: the interpreter calls the functional rule and writes
the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fuse.backends.context import Rule, Scalar
from fuse.backends.numpy.rules.context import RuleContext, Value

Made = TypeVar("Made", bound=Rule)

RULES: dict[str, Rule] = {}
REFUSALS: dict[str, Callable[..., str | None]] = {}


class Unsupported(Exception):
    """A rule met arguments it has no definition for."""


def rule(
    *overloads: str, refuse: Callable[..., str | None] | None = None
) -> Callable[[Made], Made]:
    """Register one function for ATen overloads such as ``"add.Tensor"`` or ``"relu"``.

    An overload called ``default`` is written without it. ``refuse`` takes the rule's own
    arguments, of which the tensors' shapes and dtypes mean something but not their elements,
    and returns why the rule does not cover them (the operator then runs on the host) or
    ``None``. Registering an overload twice raises ``ValueError``.
    """

    def register(function: Made) -> Made:
        for name in overloads:
            if name in RULES:
                raise ValueError(f"operator aten::{name} has two NumPy rules")
            RULES[name] = function
            if refuse is not None:
                REFUSALS[name] = refuse
        return function

    return register


__all__ = ["REFUSALS", "RULES", "Rule", "RuleContext", "Scalar", "Unsupported", "Value", "rule"]
