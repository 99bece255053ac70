"""A chunk with another dtype in the place of one: for advice, never run."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from fuse.backends.base import Chunk
from fuse.trace.node import DtypeArg, HostArg


def retyped(chunk: Chunk, old: str, new: str) -> Chunk:
    """``chunk`` with ``new`` wherever it says ``old``: operands, results, arguments."""
    found: Chunk = _retyped(chunk, old, new)
    return found


def _retyped(value: object, old: str, new: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_retyped(item, old, new) for item in value)
    if isinstance(value, DtypeArg):
        return DtypeArg(new) if value.name == old else value
    if isinstance(value, HostArg):
        return replace(value, dtype=new) if value.dtype == old else value
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {
        field.name: _retyped(getattr(value, field.name), old, new) for field in fields(value)
    }
    if changed.get("dtype") == old:
        changed["dtype"] = new
    return type(value)(**changed)
