"""What the planner's tests share: plans as text, and plans run with plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fuse.plan.plan import Plan
from fuse.trace.node import Node, Trace
from tests.trace.drawing import Drawing

OPERATORS: dict[str, Callable[..., int]] = {
    "mul": lambda a, b: a * b % 101,
    "mm": lambda a, b: (a * 7 + b * 13) % 103,
    "add": lambda a, b: a + b,
    "relu": lambda a: a + 7,
    "ones": lambda: 1,
}


def draw(drawing: Drawing, result: Plan) -> str:
    """A plan as text: ``a, b! -> c : operators`` a chunk; ``!`` marks what is donated."""
    lines = []
    for chunk in result.chunks:
        inputs = [
            drawing.name(leaf.value) + ("!" if position in chunk.donated else "")
            for position, leaf in enumerate(chunk.inputs)
        ]
        outputs = [drawing.name(value) for value in chunk.outputs]
        operators = " ".join(node.op for node in chunk.nodes)
        lines.append(f"{', '.join(inputs)} -> {', '.join(outputs)} : {operators}")
    return "\n".join(lines)


def random_numbers(drawing: Drawing) -> dict[int, int]:
    """A number for each leaf."""
    return {leaf.value: 3 + leaf.value for leaf in drawing.trace.leaves}


def run_nodes(nodes: Sequence[Node], values: dict[int, int]) -> None:
    """Run nodes one by one; memory that nothing was written to is zero."""
    for node in nodes:
        arguments = [values.get(operand.value, 0) for operand in node.operands]
        for made in node.results():
            values[made] = OPERATORS[node.target](*arguments)


def numbers_of(trace: Trace, leaves: Mapping[int, int], live: Sequence[int]) -> dict[int, int]:
    """What the live values are when the trace runs operation by operation as recorded."""
    values = dict(leaves)
    run_nodes(trace.nodes, values)
    return {value: values[value] for value in live}


def run_plan(result: Plan, leaves: Mapping[int, int]) -> dict[int, int]:
    """Chunk by chunk, each seeing its inputs only; what is donated is gone afterwards."""
    known = dict(leaves)
    for chunk in result.chunks:
        values = {leaf.value: known[leaf.value] for leaf in chunk.inputs}
        run_nodes(chunk.nodes, values)
        for position in chunk.donated:
            del known[chunk.inputs[position].value]
        known |= {value: values[value] for value in chunk.outputs}
    return {value: known[value] for value in result.live}
