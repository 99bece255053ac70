"""Calls that a backend is taken to run before it has been asked.

Asking traces the operator's rule, about a millisecond of the user's thread for each new call, most
of what recording costs. Where executables are made beside the program nobody has to know so early:
whoever compiles a chunk finds out whether its rules take it, and meanwhile it runs uncompiled. Only
the first call of a kind is asked about, for an error of dtypes is one at the call. Elsewhere the
first few are, since what is refused there costs a retry, operation by operation. What turns out to
be refused is asked about from then on, and streams are recorded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from fuse import config
from fuse.backends.base import Backend, Chunk
from fuse.bounded import Bounded
from fuse.engine.compiler import Compiler
from fuse.trace.node import Node

ASKED = 3
"""Calls of a kind that the backend is asked about where the program waits for executables."""
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
        self._asked: Bounded[tuple[object, ...], int] = Bounded(MOST_KINDS)

    def takes(self, node: Node) -> bool:
        """Whether to go on as if the backend had said that it runs ``node``."""
        if node.target in self._doubted or config.host_fallback() == "error":
            return False
        asked = self._asked.get(_kind(node), 0)
        if asked == 0:
            return False  # its dtypes may be none that the operator takes: an error at the call
        return self._backend.presumes(node) and (
            asked >= ASKED or self._compiler().can_go_on(self._backend, node)
        )

    def learn(self, node: Node) -> None:
        """Note that the backend runs ``node``, and so its like of other sizes and numbers."""
        kind = _kind(node)
        self._asked[kind] = self._asked.get(kind, 0) + 1

    def doubt(self, chunk: Chunk, reject: Callable[[Node], str | None]) -> list[tuple[Node, str]]:
        """Ask about the nodes of a chunk that could not be compiled: those refused, and why."""
        asked = ((node, reject(node)) for node in chunk.nodes if self._backend.presumes(node))
        return [(node, reason) for node, reason in asked if reason is not None]

    def distrust(self, operators: Iterable[str]) -> None:
        """Presume nothing of them from now on."""
        self._doubted.update(operators)


def _kind(node: Node) -> tuple[object, ...]:
    """A call without its sizes: its operator, dtypes and ranks, and which numbers vary."""
    operands = tuple((operand.view.dtype, len(operand.view.shape)) for operand in node.operands)
    numbers = tuple(type(arg) for arg in node.args)
    made = tuple(output.view.dtype for output in node.outputs)
    return node.op, operands, numbers, made, tuple(place for place, _ in node.dynamic)
