"""The slots of the packed array that a chunk uses."""

from __future__ import annotations

from dataclasses import replace

from fuse.trace.node import Node


def compact_scalars(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """Renumber the slots of the packed array to those the nodes use; also return which."""
    used: list[int] = []
    renumbered = []
    for node in nodes:
        if not node.dynamic and node.random is None:
            renumbered.append(node)
            continue
        dynamic = []
        for place, slot in node.dynamic:
            dynamic.append((place, len(used)))
            used.append(slot)
        random = node.random
        if random is not None:
            used += [random, random + 1]
            random = len(used) - 2
        renumbered.append(replace(node, dynamic=tuple(dynamic), random=random))
    return tuple(renumbered), tuple(used)
