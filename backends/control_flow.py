"""Loops and branches over decompositions: what one operation of ``fuse.kernels.control_flow`` runs.

The parts are PyTorch's own graphs, taken apart into steps; a backend says how it makes a step, and
how it loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from fuse.trace.decompose import Decomposition

Kind = Literal["scan", "while_loop", "cond"]


@final
@dataclass(frozen=True, slots=True)
class ControlFlow:
    """One loop or branch.

    Attributes:
        kind: what it does with its parts. ``scan``: one part, of the carried values, a slice of
            each stacked array and the rest, which returns the next carried values and slices of the
            stacked results. ``while_loop``: a condition and a body, of the carried values and the
            rest. ``cond``: two branches, of all arrays but the first, which chooses.
        carried: how many arrays are carried; they come first.
        stacked: how many arrays a scan takes slices of, along their first dimension; they follow.
        parts: the graphs.
    """

    kind: Kind
    carried: int
    stacked: int
    parts: tuple[Decomposition, ...]

    def split(self, arrays: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """The carried arrays, the stacked ones, and the rest."""
        first, second = self.carried, self.carried + self.stacked
        return list(arrays[:first]), list(arrays[first:second]), list(arrays[second:])
