"""From a Python function's signature to an operator's schema, and from a call to flat arrays."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

_TYPES: Final = {bool: "bool", int: "int", float: "float", str: "str"}


@dataclass(frozen=True, slots=True)
class Plain:
    """A signature that one schema says: tensors by position, plain values by keyword.

    Attributes:
        schema: arguments and results, without a name.
        tensors: names of the tensors, in order.
        required: how many of them have no default; the others may be ``None``.
        types: type of each static value, as in schemas.
        results: how many the function is declared to return; 1 where nothing is said.
        tupled: whether it returns them as a tuple.
    """

    schema: str
    tensors: tuple[str, ...]
    required: int
    types: dict[str, str]
    results: int
    tupled: bool

    def takes(self, args: Sequence[Any], options: dict[str, Any]) -> bool:
        """Whether a call is one of the schema's."""
        if not self.required <= len(args) <= len(self.tensors):
            return False
        for at, value in enumerate(args):
            if not isinstance(value, torch.Tensor) and (value is not None or at < self.required):
                return False
        return all(
            name in self.types and _fits(self.types[name], value) for name, value in options.items()
        )


def plain(function: Callable[..., Any], written: Sequence[str]) -> Plain | None:
    """The schema of a function's signature; ``None`` where it takes more than a schema says."""
    tensors: list[str] = []
    required = 0
    texts: list[str] = []
    static: list[str] = []
    kinds: dict[str, str] = {}
    signature = read(function)
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return None
        if parameter.kind is parameter.KEYWORD_ONLY:
            kind = _kind(parameter)
            text = None if kind is None else _default(kind, parameter.default)
            if kind is None or text is None:
                return None
            kinds[name] = kind
            static.append(f"{kind} {name}{text}")
            continue
        if parameter.default is parameter.empty:
            required += 1
        elif parameter.default is not None:
            return None  # a number, which is traced, or a tree
        marker = f"({chr(ord('a') + written.index(name))}!)" if name in written else ""
        missing = parameter.default is None
        texts.append(f"Tensor{marker}{'?' if missing else ''} {name}{'=None' if missing else ''}")
        tensors.append(name)
    if not required:
        return None
    count, tupled = _returned(signature.return_annotation)
    rest = count - len(written)
    if rest < 0:
        return None
    made = "Tensor" if rest == 1 else f"({', '.join(['Tensor'] * rest)})"
    arguments = ", ".join([*texts, *(["*", *static] if static else [])])
    return Plain(f"({arguments}) -> {made}", tuple(tensors), required, kinds, count, tupled)


def read(function: Callable[..., Any]) -> inspect.Signature:
    """The signature, with annotations as objects where they can be evaluated."""
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, SyntaxError, AttributeError, TypeError):
        return inspect.signature(function)


def _kind(parameter: inspect.Parameter) -> str | None:
    """The schema's type of a static value: by its annotation, else by its default."""
    wanted = parameter.annotation
    if wanted is not parameter.empty and not isinstance(wanted, str):
        return kind_named(wanted)
    if parameter.default is parameter.empty:
        return None
    return kind_of(parameter.default)


def kind_named(annotation: object) -> str | None:
    """The schema's type of an annotation of plain values; ``None`` of any other."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [part for part in parts if part is not type(None)]
        kind = kind_named(inner[0]) if len(inner) == 1 < len(parts) else None
        return None if kind is None else f"{kind}?"
    if origin is typing.Literal:
        kinds = {kind_of(part) for part in parts}
        return kinds.pop() if len(kinds) == 1 else None
    if origin in (tuple, list, Sequence) and set(parts) - {Ellipsis} in ({int}, {float}):
        return f"{_TYPES[parts[0]]}[]"
    return _TYPES.get(annotation) if isinstance(annotation, type) else None


def kind_of(value: object) -> str | None:
    """The schema's type of a value; ``None`` where schemas have none."""
    if isinstance(value, (tuple, list)) and value:
        inner = {type(item) for item in value}
        return f"{_TYPES[inner.pop()]}[]" if inner in ({int}, {float}) else None
    return _TYPES.get(type(value))


def _fits(kind: str, value: object) -> bool:
    if value is None:
        return kind.endswith("?")
    found = kind_of(value)
    return found == kind.removesuffix("?") or (kind.startswith("float") and found == "int")


def _default(kind: str, value: object) -> str | None:
    """`` = value`` of a schema; ``None`` where it cannot be written."""
    if value is inspect.Parameter.empty:
        return ""
    if not _fits(kind, value):
        return None
    if isinstance(value, str):
        return f'="{value}"' if value.isidentifier() else None
    if isinstance(value, float) and not np.isfinite(value):
        return None
    text = str(list(value)) if isinstance(value, (tuple, list)) else str(value)
    return f"={text}"


def _returned(annotation: object) -> tuple[int, bool]:
    """How many results an annotation says, and whether they come as a tuple."""
    if typing.get_origin(annotation) is tuple and Ellipsis not in typing.get_args(annotation):
        return len(typing.get_args(annotation)), True
    return 1, False
