"""Nodes of a chunk that a platform does as one call."""

from __future__ import annotations

from abc import ABC, abstractmethod

import jax

from fuse.backends.base import Chunk
from fuse.trace.spec import Layout


class Call(ABC):
    """Several nodes done as one, in the order of their places; they may read each other.

    Attributes:
        nodes: their places in the chunk, ascending.
    """

    nodes: tuple[int, ...]

    @abstractmethod
    def emit(self, chunk: Chunk, values: dict[int, tuple[jax.Array, Layout]]) -> None:
        """Extend ``values`` by what other nodes, or the chunk's outputs, need of the results."""
