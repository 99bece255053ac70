"""What a backend knows of operators that are JAX functions: a program for each call's shapes.

A kernel's operator has no rule. The node of a call names, as its target, the operator and the
digest of the function as JAX sees it for these shapes: ``mylib::rope@3f0c…``. So whatever is keyed
by a program is keyed by the function's content too. This table leads from a digest to what can run
it, and from an operator to what makes its programs; nothing here imports JAX.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from fuse.trace.functional import MARK, find_overload, schema_of
from fuse.trace.node import Node


class Named(Protocol):
    """A backend's platform, as a program sees it."""

    @property
    def name(self) -> str:
        """As JAX has it."""


class Program(ABC):
    """A function of arrays of given shapes and dtypes, the results in the order of a node's slots.

    Attributes:
        code: a digest of everything that decides about its results.
        storable: whether an executable with it in it means the same in another process.
    """

    code: str
    storable: bool

    @abstractmethod
    def shipped(self, platform: str) -> Program:
        """One of the same results on ``platform`` alone, which can be pickled.

        Raises what the compiler says of it.
        """

    @abstractmethod
    def emit(self, platform: Named, arrays: Sequence[Any]) -> list[Any]:
        """The results, on tracers of JAX, for a program of ``platform``."""

    @abstractmethod
    def on_host(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results, computed on the host."""


PROGRAMS: dict[str, Program] = {}
"""By code. As many as there are functions and shapes that the process has met."""
MAKERS: dict[str, Callable[[Node], Program]] = {}
"""The kernels' operators, by name."""


def program_of(target: str) -> Program | None:
    """The program that a target names, or ``None`` for a target that has a rule."""
    _, marked, code = target.partition(MARK)
    return PROGRAMS[code] if marked else None


def is_function(name: str) -> bool:
    """Whether an operator or a target is a kernel's."""
    return MARK in name or name in MAKERS


def target_of(node: Node) -> str:
    """The target of a kernel's node, which its operands' shapes and dtypes decide.

    What the function raises while JAX traces it is passed on.
    """
    program = MAKERS[node.op](node)
    PROGRAMS.setdefault(program.code, program)
    return f"{node.op}{MARK}{program.code}"


@dataclass(frozen=True, slots=True)
class Shipment:
    """What another process needs to compile chunks with kernels: their operators and programs."""

    schemas: dict[str, str]
    programs: dict[str, Program]

    @staticmethod
    def of(nodes: Iterable[Node], platform: str) -> Shipment:
        """What these nodes call. Raises what the compiler says of a program."""
        called = [(node, program_of(node.target)) for node in nodes]
        schemas = {node.op: str(schema_of(node.op)) for node, program in called if program}
        programs = {one.code: one for _, one in called if one is not None}
        return Shipment(schemas, {at: one.shipped(platform) for at, one in programs.items()})

    def unpack(self) -> None:
        """Make them known here."""
        for name, schema in self.schemas.items():
            if find_overload(name) is None:
                namespace, _, rest = schema.partition("::")
                library = torch.library.Library(namespace, "FRAGMENT")
                library.define(rest)
                _libraries.append(library)
        PROGRAMS.update(self.programs)


_libraries: list[torch.library.Library] = []


def arrays_in(arguments: Sequence[Any]) -> list[Any]:
    """The arrays among a target's bound arguments, lists opened: those of a ``Program``."""
    found: list[Any] = []
    for value in arguments:
        if isinstance(value, (list, tuple)):
            found += arrays_in(value)
        elif hasattr(value, "dtype"):
            found.append(value)
    return found
