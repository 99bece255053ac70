"""A jaxpr as a text that is equal in every process exactly where the programs are equal.

JAX's own printing will not do: it leaves out how a Pallas kernel's grid maps to blocks, shortens
arrays, and names functions by their addresses.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Final

import jax
import numpy as np
from jax.extend import core

_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-f]+")
_PROCESS: Final = os.urandom(16).hex()
"""Stands for what has no name that another process would know: no two processes meet by it."""
DERIVATIVES: Final = frozenset(
    {"bwd", "fwd", "fwd_jaxpr_thunk", "jvp_fun", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "out_trees"}
)
"""Parameters that say how an equation is differentiated, which a traced program is no more."""


_unnamed: Final[dict[int, object]] = {}
"""Objects known by their addresses only: kept, so that no other one gets the address."""


def canonical(closed: core.ClosedJaxpr) -> str:
    """The text: equations, parameters and constants, without names, lines or addresses."""
    return "\n".join(_Printer().closed(closed))


def content(value: object) -> str:
    """Any object as such a text: a function by its code and what it closes over."""
    return _Printer().text(value)


class _Printer:
    """Numbers variables in the order in which the program meets them."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._kept: list[object] = []  # so that no id is used twice

    def closed(self, closed: core.ClosedJaxpr) -> Iterator[str]:
        """The lines of a program."""
        yield from self._jaxpr(closed.jaxpr)
        yield f"constants {self._listed(closed.consts)}"

    def _jaxpr(self, jaxpr: core.Jaxpr) -> Iterator[str]:
        numbers: dict[core.Var, int] = {}

        def name(variable: core.Var | core.Literal) -> str:
            if isinstance(variable, core.Literal):
                return f"{self.text(np.asarray(variable.val))}:{variable.aval}"
            number = numbers.setdefault(variable, len(numbers))
            return f"{number}:{variable.aval}"

        def names(variables: Iterable[core.Var | core.Literal]) -> str:
            return ", ".join(map(name, variables))

        yield f"takes {names(jaxpr.constvars)} and {names(jaxpr.invars)}"
        for equation in jaxpr.eqns:
            params = sorted(set(equation.params) - DERIVATIVES)
            given = ", ".join(f"{key}={self.text(equation.params[key])}" for key in params)
            made, read = names(equation.outvars), names(equation.invars)
            yield f"{made} = {equation.primitive.name} {read} [{given}]"
        yield f"returns {names(jaxpr.outvars)}"

    def _listed(self, values: Iterable[object]) -> str:
        return f"[{', '.join(map(self.text, values))}]"

    def text(self, value: object) -> str:
        """A constant or parameter."""
        if isinstance(value, core.ClosedJaxpr):
            return "{" + "; ".join(self.closed(value)) + "}"
        if isinstance(value, core.Jaxpr):
            return "{" + "; ".join(self._jaxpr(value)) + "}"
        if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
            return f"{value.dtype} {self.text(jax.random.key_data(value))}"
        if isinstance(value, (np.ndarray, np.generic, jax.Array)):
            array = np.asarray(value)
            return f"{array.dtype}{array.shape}{array.tobytes().hex()}"
        if isinstance(value, (list, tuple)):
            return f"{type(value).__name__}{self._listed(value)}"
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{key}: {self.text(value[key])}' for key in value)}}}"
        if isinstance(value, (set, frozenset)):
            return f"{{{', '.join(sorted(map(self.text, value)))}}}"
        if isinstance(value, (enum.Enum, type, str, bytes, int, float, complex, type(None))):
            return repr(value)
        if id(value) not in self._known:
            self._kept.append(value)
            self._known[id(value)] = "itself"  # where it is part of itself
            self._known[id(value)] = self._object(value)
        return self._known[id(value)]

    def _object(self, value: object) -> str:
        kind = type(value).__qualname__
        if isinstance(value, CodeType):
            return self._listed((value.co_code, value.co_consts, value.co_names))
        if isinstance(value, FunctionType):
            cells = [_held(cell) for cell in value.__closure__ or ()]
            parts = [value.__code__, value.__defaults__, value.__kwdefaults__, cells]
            return f"{value.__module__}.{value.__qualname__} {self._listed(parts)}"
        if isinstance(value, MethodType):
            return f"{self.text(value.__func__)} of {self.text(value.__self__)}"
        if dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value) if field.compare]
            given = ", ".join(f"{name}={self.text(getattr(value, name))}" for name in fields)
            return f"{kind}({given})"
        if isinstance(value, partial):
            return f"partial {self._listed((value.func, value.args, value.keywords))}"
        text = repr(value)
        if _ADDRESS.search(text) is None:
            return f"{kind} {text}"
        _unnamed[id(value)] = value
        return f"{kind} of process {_PROCESS} {id(value)} {text}"


def _held(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None
