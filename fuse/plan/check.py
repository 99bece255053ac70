"""What must hold of every plan, made here or read from a store."""

from __future__ import annotations

from collections.abc import Sequence

from fuse.errors import VerifyError
from fuse.plan.plan import Plan, PlannedChunk
from fuse.trace.node import Node


def undefined_values(nodes: Sequence[Node]) -> set[int]:
    """Values that are memory nothing was written to: they read as zeros and are no inputs."""
    return {
        operand.value
        for node in nodes
        for operand in node.operands
        if operand.fresh and not operand.initialised
    }


def check_plan(plan: Plan, donatable: Sequence[int]) -> Plan:
    """Return ``plan`` if it runs its trace; otherwise raise ``VerifyError``.

    Checked: an operation runs at most once, after everything it reads; a chunk's inputs exist
    by then and its outputs are made in it; every live value is made exactly once and consumed
    by nobody; what is donated is free (of the leaves, those in ``donatable``) and read by
    nothing later; and the packed array's slots lie in the trace's.
    """
    leaves = {leaf.value for leaf in plan.trace.leaves}
    undefined = undefined_values(plan.trace.nodes)
    live, free = set(plan.live), set(donatable)
    known, ran, consumed = set(leaves), set[int](), set[int]()
    for piece in plan.chunks:
        _check_chunk(piece, undefined, plan.trace.scalars)
        missing = [leaf.value for leaf in piece.inputs if leaf.value not in known]
        if missing:
            raise VerifyError(f"a chunk reads {missing} before they are made")
        results = [value for node in piece.nodes for value in node.results()]
        again = [value for value in results if value in ran]
        if again or len(set(results)) != len(results):
            raise VerifyError(f"values {again or results} are made twice")
        ran.update(results)
        known.update(piece.outputs)
        # A donated array is gone: nothing later may read it, and it may not be live.
        gone = {piece.inputs[position].value for position in piece.donated}
        if gone & live:
            raise VerifyError(f"a chunk consumes live values {sorted(gone & live)}")
        if gone & leaves - free:
            raise VerifyError(f"a chunk consumes leaves {sorted(gone & leaves - free)} in use")
        known -= gone
        consumed |= gone & leaves
    absent = [value for value in plan.live if value not in known or value in leaves]
    if absent or sorted(live) != list(plan.live):
        raise VerifyError(f"live values {absent or plan.live} are not made exactly once")
    if sorted(consumed) != list(plan.donated):
        raise VerifyError(f"the plan says that it consumes {plan.donated}, not {sorted(consumed)}")
    return plan


def _check_chunk(piece: PlannedChunk, undefined: set[int], scalars: int) -> None:
    """What can be seen within one chunk."""
    inputs = [leaf.value for leaf in piece.inputs]
    if len(set(inputs)) != len(inputs):
        raise VerifyError(f"a chunk has an input twice, in {inputs}")
    seen, made = set(inputs), set[int]()
    for node in piece.nodes:
        for operand in node.operands:
            if operand.value not in seen and operand.value not in undefined:
                raise VerifyError(f"%{operand.value} is no input of a chunk with\n  {node}")
        made.update(node.results())
        seen |= made
    lost = [value for value in piece.outputs if value not in made]
    if lost or len(set(piece.outputs)) != len(piece.outputs):
        raise VerifyError(f"a chunk returns {lost or piece.outputs}, which it does not make once")
    positions = piece.donated
    if len(set(positions)) != len(positions) or any(
        not 0 <= position < len(inputs) for position in positions
    ):
        raise VerifyError(f"donated positions {positions} of {len(inputs)} inputs")
    if any(not 0 <= slot < scalars for slot in piece.scalars):
        raise VerifyError(f"slots {piece.scalars} are outside {scalars} scalars")
