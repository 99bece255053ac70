"""Which nodes a rule is presumed to compute, without tracing it.

Rules refuse by the dtypes that they do not know, and those that refuse more say so where they are
registered (``rules.registry.MAY_REFUSE``). What slips through is found out where it is compiled.
"""

from __future__ import annotations

from typing import Final

from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.registry import MAY_REFUSE, RULES
from fuse.trace.node import HostArg, Node, NumberArg

PLAIN: Final = frozenset(
    [
        "bfloat16",
        "bool",
        "float16",
        "float32",
        "float64",
        "int16",
        "int32",
        "int64",
        "int8",
        "uint8",
    ]
)
"""Dtypes that every rule knows, but for those that say otherwise."""


def presumed(node: Node, platform: Platform) -> bool:
    """Whether the rule of ``node`` takes it, as far as tables say; ``False`` where they do not."""
    if node.target not in RULES or not node.dtypes() <= PLAIN:
        return False
    numbers = (arg.number for arg in node.args if isinstance(arg, HostArg | NumberArg))
    if any(isinstance(number, complex) for number in numbers):
        return False
    may_refuse = MAY_REFUSE.get(node.target)
    return not (may_refuse is not None and may_refuse(node)) and platform.refuses(node) is None
