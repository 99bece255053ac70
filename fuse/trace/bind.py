"""A node's arguments as the rule of its target takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuse.trace.functional import DROPPED, is_out, schema_of
from fuse.trace.node import DroppedArg, Node


def bind(node: Node) -> tuple[list[Any], dict[str, Any]]:
    """Return ``(positional, keyword)`` arguments in the order of the target's schema.

    ``out`` tensors and arguments that say nothing about values (device, layout, memory
    format, generator) are left out; what the recorded overload does not have takes the
    target's default.
    """
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    for argument, value in _bound(node):
        if argument.kwarg_only:
            keyword[argument.name] = value
        else:
            positional.append(value)
    return positional, keyword


def named(node: Node) -> dict[str, Any]:
    """The same arguments, all by name."""
    return {argument.name: value for argument, value in _bound(node)}


def _bound(node: Node) -> Iterator[tuple[Any, Any]]:
    given = {
        argument.name: value
        for argument, value in zip(schema_of(node.op).arguments, node.args, strict=True)
    }
    for argument in schema_of(node.target).arguments:
        if argument.name in DROPPED or is_out(argument):
            continue
        value = given.get(argument.name, argument.default_value)
        if isinstance(value, DroppedArg):
            value = None
        yield argument, tuple(value) if isinstance(value, list) else value
