"""Traces from a few lines of text, for tests of what works on traces.

``c = mul(a, b)`` makes a value, ``d over a = add_(a, b)`` writes one in the place of another.
A name is a leaf where it is used before it is made, and memory that nothing was written to
where it is in ``undefined``. Values are vectors of four float32 numbers unless ``sizes`` says
otherwise. An operator in ``random`` draws numbers, a line in ``varying`` takes one that varies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fuse.trace.node import Node, Operand, Output, TensorArg, Trace, Write
from fuse.trace.spec import Layout, View, contiguous_strides

LINE = re.compile(r"(\w+)(?: over (\w+))? = ([\w.]+)\(([\w, ]*)\)")


class Drawing:
    """A trace, and the number behind each name of its text."""

    def __init__(
        self,
        text: str,
        sizes: Mapping[str, int] | None = None,
        undefined: str = "",
        random: str = "",
        varying: Sequence[int] = (),
    ) -> None:
        self.names: dict[str, int] = {}
        self.sizes = dict(sizes or {})
        self.undefined, self.random = undefined.split(), random.split()
        lines = [line.strip() for line in text.strip().splitlines()]
        self.nodes = tuple(self._node(line) for line in lines)
        self.trace = Trace.of(
            (node, (len(node.operands),) if line in varying else ())
            for line, node in enumerate(self.nodes)
        )

    def __getitem__(self, names: str) -> tuple[int, ...]:
        """The numbers of names separated by blanks, ascending."""
        return tuple(sorted(self.names[name] for name in names.split()))

    def name(self, value: int) -> str:
        """The name of a value."""
        return next(name for name, number in self.names.items() if number == value)

    def _number(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _layout(self, name: str) -> Layout:
        return Layout("float32", (self.sizes.get(name, 4),))

    def _view(self, name: str) -> View:
        shape = self._layout(name).shape
        return View("float32", shape, contiguous_strides(shape))

    def _operand(self, name: str, place: int) -> Operand:
        fresh = name not in self.names
        written = not fresh or name not in self.undefined
        view, layout = self._view(name), self._layout(name)
        return Operand(self._number(name), view, layout, place, fresh, written)

    def _node(self, line: str) -> Node:
        found = LINE.fullmatch(line)
        assert found is not None, f"not a line of a drawing: {line}"
        made, over, operator, arguments = found.groups()
        names = [name.strip() for name in arguments.split(",") if name.strip()]
        operands = tuple(self._operand(name, place) for place, name in enumerate(names))
        value, layout, view = self._number(made), self._layout(made), self._view(made)
        outputs = () if over else (Output(value, view, layout),)
        writes = (Write(names.index(over), value, layout, view),) if over else ()
        return Node(
            op=operator,
            target=operator.rstrip("_"),
            args=tuple(TensorArg(index) for index in range(len(operands))),
            operands=operands,
            outputs=outputs,
            writes=writes,
            slots=(0,),
            blocks=int(operator in self.random),
        )
