"""Which functional overload computes an in-place or ``out=`` overload.

Works on operator schemas alone, as PyTorch registered them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

DROPPED = frozenset(
    {"layout", "device", "pin_memory", "memory_format", "generator", "non_blocking"}
)


MARK = "@"
"""Between the name of an operator without a rule and the digest of the program that computes it."""


def find_overload(name: str) -> Any:
    """The ``OpOverload`` of a name such as ``add.Tensor`` or ``mylib::op``; ``None`` if unknown.

    What follows ``MARK`` says which program computes it, and is no part of the name.
    """
    namespace, _, rest = name.partition(MARK)[0].rpartition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace or "aten"), base, None)
    return None if packet is None else getattr(packet, overload or "default", None)


def overload_name(overload: torch._ops.OpOverload) -> str:
    """The inverse of ``find_overload``: aten overloads without namespace or ``.default``."""
    schema = overload._schema
    name: str = schema.name.removeprefix("aten::")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def qualified_name(name: str) -> str:
    """The overload with its namespace, as messages say it: ``aten::add.Tensor``."""
    return name if "::" in name else f"aten::{name}"


def base_name(op: str) -> str:
    """``"aten::bernoulli_.float"`` -> ``"bernoulli"``."""
    return op.removeprefix("aten::").partition(".")[0].removesuffix("_")


@cache
def schema_of(name: str) -> torch._C.FunctionSchema:
    """The schema of an overload by name."""
    schema: torch._C.FunctionSchema = find_overload(name)._schema
    return schema


def is_written(argument: torch._C.Argument) -> bool:
    """Whether a schema argument's memory is overwritten."""
    return argument.alias_info is not None and argument.alias_info.is_write


@cache
def attributes_of(name: str) -> frozenset[str]:
    """The arguments of an overload whose numbers say how to compute, and promote no dtype.

    They are ``float`` and ``int`` in its schema, where a ``Scalar`` is a value beside tensors.
    """
    types = {argument.name: str(argument.type) for argument in schema_of(name).arguments}
    return frozenset(name for name, kind in types.items() if "float" in kind or "int" in kind)


def is_out(argument: torch._C.Argument) -> bool:
    """Whether a schema argument is an ``out=`` tensor."""
    return bool(is_written(argument) and argument.kwarg_only)


def functional_name(name: str, has_rule: Callable[[str], bool]) -> str:
    """The overload whose rule computes ``name``; ``name`` itself where it has one or none fits."""
    if has_rule(name):
        return name
    schema = schema_of(name)
    base, _, overload = name.partition(".")
    if any(is_out(argument) for argument in schema.arguments):
        return _functional_of_out(base, schema) or name
    if base.endswith("_") and not base.endswith("__"):
        plain = base[:-1] + (f".{overload}" if overload else "")
        if find_overload(plain) is not None:
            return plain
        return _functional_of_inplace(base[:-1], schema) or name
    return name


def _functional_of_inplace(base: str, schema: torch._C.FunctionSchema) -> str | None:
    """The functional overload of the same arguments where its name differs (floor_divide_)."""
    wanted = [(a.name, str(a.type)) for a in schema.arguments]
    packet = getattr(torch.ops.aten, base, None)
    for overload in packet.overloads() if packet is not None else ():
        candidate = getattr(packet, overload)._schema
        if any(is_written(argument) for argument in candidate.arguments):
            continue
        if [(a.name, str(a.type)) for a in candidate.arguments] == wanted:
            return base if overload == "default" else f"{base}.{overload}"
    return None


def _functional_of_out(base: str, schema: torch._C.FunctionSchema) -> str | None:
    wanted = [
        (a.name, str(a.type)) for a in schema.arguments if not is_out(a) and a.name not in DROPPED
    ]
    packet = getattr(torch.ops.aten, base, None)
    fallback = None
    for overload in packet.overloads() if packet is not None else ():
        candidate = getattr(packet, overload)._schema
        if any(is_written(argument) for argument in candidate.arguments):
            continue
        having = [(a.name, str(a.type)) for a in candidate.arguments if a.name not in DROPPED]
        name = base if overload == "default" else f"{base}.{overload}"
        if having == wanted:
            return name
        # Factories: the functional form has a dtype that out= takes from its tensor.
        if [pair for pair in having if pair[0] != "dtype"] == wanted:
            fallback = name
    return fallback
