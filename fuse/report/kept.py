"""Chunks without the gradients that a program keeps over a host read: for advice, never run."""

from __future__ import annotations

from dataclasses import replace

from fuse.backends.base import Chunk
from fuse.engine.targeted import Planned
from fuse.plan.plan import Plan
from fuse.trace.node import Node


def gradients(plan: Plan) -> dict[int, Node]:
    """Values that are alive after the plan though an update has read them: with what made them.

    A gradient is made by an operation, not written, and an operation that writes reads it: into a
    parameter or into an optimizer's average, which lived before.
    """
    leaves = {leaf.value for leaf in plan.trace.leaves}
    older: set[int] = set(leaves)
    updating: set[int] = set()
    for node in plan.trace.nodes:
        written = {node.operands[write.operand].value for write in node.writes}
        if written and written <= older:
            older.update(node.results())
            updating.update(operand.value for operand in node.operands)
    wanted = (updating & set(plan.live)) - older
    return {
        output.value: node
        for node in plan.trace.nodes
        for output in node.outputs
        if output.value in wanted and output.layout.numel > 1
    }


def without_gradients(planned: Planned) -> list[Chunk | None]:
    """Each of the plan's chunks without the gradients it returns; ``None`` where it returns none.

    Those that a later chunk reads stay.
    """
    kept = gradients(planned.plan)
    changed: list[Chunk | None] = []
    for at, (piece, chunk) in enumerate(zip(planned.plan.chunks, planned.chunks, strict=True)):
        later = {leaf.value for one in planned.plan.chunks[at + 1 :] for leaf in one.inputs}
        dropped = {value for value in piece.outputs if value in kept and value not in later}
        pairs = zip(piece.outputs, chunk.outputs, strict=True)
        outputs = tuple(local for value, local in pairs if value not in dropped)
        changed.append(replace(chunk, outputs=outputs) if dropped and outputs else None)
    return changed
