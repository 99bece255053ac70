"""A trace as a picture: its calls in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Sequence

from fuse.trace.node import Node


def dot(nodes: Sequence[Node]) -> str:
    """A node for each call, with the user's line; an edge for each value that another reads."""
    lines = ["digraph {", "  node [shape=box];"]
    maker: dict[int, int] = {}
    given: set[int] = set()
    for number, node in enumerate(nodes):
        made = ", ".join(f"{one.view.dtype}{list(one.view.shape)}" for one in node.outputs)
        words = "\\n".join(part for part in (node.op, made, node.source) if part)
        lines.append(f'  n{number} [label="{_quoted(words)}"];')
        for value in dict.fromkeys(operand.value for operand in node.operands):
            origin = maker.get(value)
            if origin is None and value not in given:
                given.add(value)
                lines.append(f'  v{value} [shape=ellipse, label="%{value}"];')
            lines.append(f"  {f'v{value}' if origin is None else f'n{origin}'} -> n{number};")
        maker.update(dict.fromkeys(node.results(), number))
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return text.replace('"', '\\"')
