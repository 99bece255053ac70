"""Calls that a backend is taken to run before it has been asked.

Asking traces the operator's rule, about a millisecond of the user's thread for each new call, most
of what recording costs. Where executables are made beside the program nobody has to know so early:
whoever compiles a chunk finds out whether its rules take it, and meanwhile it runs uncompiled. Only
the first call of a kind is asked about, for an error of dtypes is one at the call. What turns out
to be refused is asked about from then on, and streams are recorded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from fuse import config
from fuse.backends.base import Backend, Chunk
from fuse.bounded import Bounded
from fuse.engine.compiler import Compiler
from fuse.trace.node import Node

MOST_KINDS = 4096
"""Kinds of calls that the backend was asked about, some 300 bytes each."""


@final
class Presumed:
    """What is presumed of one backend; ``doubt`` may be called by any thread."""

    def __init__(
        self, backend: Backend, compiler: Callable[[], Compiler], doubted: Iterable[str] = ()
    ) -> None:
        """``compiler`` gives what makes executables, as it is at a call; nothing is presumed of the
        operators ``doubted``."""
        self._backend = backend
        self._compiler = compiler
        self._doubted: set[str] = set(doubted)
        self._asked: Bounded[tuple[object, ...], None] = Bounded(MOST_KINDS)

    def takes(self, node: Node) -> bool:
        """Whether to go on as if the backend had said that it runs ``node``."""
        if node.target in self._doubted or config.host_fallback() == "error":
            return False
        if _kind(node) not in self._asked:
            return False  # its dtypes may be none that the operator takes: an error at the call
        return self._backend.presumes(node) and self._compiler().can_go_on(self._backend, node)

    def learn(self, node: Node) -> None:
        """Note that the backend runs ``node``, and so its like of other sizes and numbers."""
        self._asked[_kind(node)] = None

    def doubt(self, chunk: Chunk, reject: Callable[[Node], str | None]) -> bool:
        """Ask about the nodes of a chunk that could not be compiled; whether one is refused.

        Nothing is presumed of its operator from then on.
        """
        refused = {
            node.target
            for node in chunk.nodes
            if self._backend.presumes(node) and reject(node) is not None
        }
        self._doubted |= refused
        return bool(refused)

    def distrust(self, operators: Iterable[str]) -> None:
        """Presume nothing of them from now on."""
        self._doubted.update(operators)


def _kind(node: Node) -> tuple[object, ...]:
    """A call without its sizes: its operator, dtypes and ranks, and which numbers vary."""
    operands = tuple((operand.view.dtype, len(operand.view.shape)) for operand in node.operands)
    numbers = tuple(type(arg) for arg in node.args)
    made = tuple(output.view.dtype for output in node.outputs)
    return node.op, operands, numbers, made, tuple(place for place, _ in node.dynamic)
