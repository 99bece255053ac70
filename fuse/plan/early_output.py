"""Early outputs: where in a trace the number is made that its program will read.

A training step makes its loss half-way and reads it at the end: PyTorch still holds that one
number when the trace is cut. As a chunk's result it is there as soon as the forward pass is
done, and the backward pass and the update run while the program goes on and records its next
step. Within one executable it would come with the last of its results.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuse.trace.borders import WORTH
from fuse.trace.node import Node
from fuse.trace.spec import Layout

FEWEST = 8
"""Operations that a chunk before or after the border has at least."""


def early_output_position(
    nodes: Sequence[Node],
    live: Sequence[int],
    layouts: dict[int, Layout],
    worth: int = WORTH,
) -> int:
    """The position after the last operation that makes a live single number; 0 for none.

    At least ``worth`` bytes are made after it. A number written into memory that existed before,
    such as a counter, is no early output.
    """
    wanted, behind = set(live), 0
    for position in range(len(nodes), FEWEST - 1, -1):
        node = nodes[position - 1]
        single = any(output.value in wanted and output.layout.numel == 1 for output in node.outputs)
        if single and behind >= worth and position <= len(nodes) - FEWEST:
            return position
        behind += sum(layouts[value].nbytes for value in node.results())
    return 0
