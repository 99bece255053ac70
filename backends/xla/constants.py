"""Values of a chunk that are the same whatever it is given, computed while it is compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np

from fuse.backends.functions import is_function
from fuse.trace.node import Node, Operand
from fuse.trace.spec import View

MOST_NODES = 64
"""Nodes of which a constant is computed: a mask that is made of indices takes a dozen."""
MOST_ELEMENTS = 1 << 28
"""Elements of one: those of a mask over 16,384 tokens, 256 MB."""

Emit = Callable[[Sequence[Node], Operand], jax.Array]
"""What reads an operand after these nodes, which take nothing."""


class Constants:
    """The constants of a program's nodes, computed when they are asked for.

    They are no part of the program by that: a kernel chooses what to compute by a mask's values.
    """

    def __init__(self, nodes: Sequence[Node], emit: Emit) -> None:
        self._nodes, self._emit = nodes, emit
        self._last: tuple[tuple[int, View], np.ndarray] | None = None

    @functools.cached_property
    def _makers(self) -> dict[int, int]:
        """The node that makes a value: few programs have anything asked of them."""
        return {value: at for at, node in enumerate(self._nodes) for value in node.results()}

    def read(self, operand: Operand) -> np.ndarray | None:
        """What an operand is in every run; ``None`` where that is not known, or too much.

        Its view has to be at a place that does not vary.
        """
        key = operand.value, operand.view
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        made = self._makers_of(operand)
        if made is None or operand.view.numel > MOST_ELEMENTS:
            return None
        # Compiled, so that what is on the way is not in memory: indices have eight bytes.
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            found = np.asarray(jax.jit(lambda: self._emit(made, operand))())
        self._last = key, found
        return found

    def _makers_of(self, operand: Operand) -> list[Node] | None:
        """The nodes that make it, in order, none of which reads anything that varies."""
        places: set[int] = set()
        wanted = [operand]
        while wanted:
            one = wanted.pop()
            if not one.initialised:
                continue
            place = self._makers.get(one.value)
            if place is None or len(places) > MOST_NODES:
                return None
            node = self._nodes[place]
            if node.dynamic or node.random is not None or is_function(node.target):
                return None
            if place not in places:
                places.add(place)
                wanted += node.operands
        return [self._nodes[place] for place in sorted(places)]
