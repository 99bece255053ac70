"""A graph of torch.compile as one call: tensors in, tensors out.

The first time it is called at a place of the stream, its operations are made one by one, and
the native core remembers where they led (``csrc/recorder/compiled.h``). From then on a call there
is one step of the recorder, whatever the number of its operations.
"""

from __future__ import annotations

import enum
from collections import Counter
from typing import Any

import torch

from fuse.compile.counts import COUNTS
from fuse.device import lazy
from fuse.trace.source import in_place_of_frames

PATIENCE = 4
"""Captures that may fail before a graph is made operation by operation for good."""


class Kind(enum.Enum):
    """Which part of a program a graph is."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INFERENCE = "inference"


class Graph:
    """Calls a graph as AOTAutograd asks for it: with a list, which is emptied.

    An inference graph is a trace of its own: what was recorded before is cut off, and its end is a
    cut. So nothing around it makes it compile again. A forward pass is followed by its backward
    pass, and both by a compiled optimizer: one trace.
    """

    def __init__(
        self, module: torch.fx.GraphModule, kind: Kind, runner: Runner | None = None
    ) -> None:
        self.module, self.kind = module, kind
        self.operations = sum(node.op == "call_function" for node in module.graph.nodes)
        self.reasons: Counter[str] = Counter()
        self._constants = _take_constants(module)
        self._run = runner or Runner(module)
        self._core = lazy.core()
        self._ends = kind is Kind.INFERENCE
        self._handle = self._core.graph(self._ends)
        self._patience = PATIENCE
        COUNTS.graphs[kind.value] += 1

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """The results on these arguments, which the list holds no longer afterwards."""
        COUNTS.calls += 1
        inputs = arguments + self._constants if self._constants else arguments
        results: list[Any] | None = self._core.replay(self._handle, inputs)
        if results is None:
            results = self._record(inputs)
        # Activations die here unless somebody else holds them: their memory is reused.
        inputs.clear()
        arguments.clear()
        if self._ends:
            self._core.cut(lazy.CUTS["compiled"])
        return results

    def _record(self, inputs: list[Any]) -> list[Any]:
        with torch.no_grad():
            if self._patience == 0 or not self._core.begin_capture(self._handle, inputs):
                COUNTS.by_operation += 1
                return self._run.all(inputs)
            try:
                results = self._run.all(inputs)
            except BaseException:
                self._core.end_capture(None, inputs, [])
                raise
        reason = self._core.end_capture(self._handle, inputs, results)
        if reason:
            COUNTS.by_operation += 1
            COUNTS.reasons[reason] += 1
            self.reasons[reason] += 1
            self._patience -= 1
        else:
            COUNTS.captures += 1
            self._patience = PATIENCE
        return results


class Runner(torch.fx.Interpreter):
    """Makes a graph's calls; each knows the user's line that it comes from."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self._lines: dict[torch.fx.Node, str] = {}

    def all(self, inputs: list[Any]) -> list[Any]:
        """The results of the graph, as a list, which alone holds them.

        The interpreter would keep them until its next run, and autograd copies a gradient that
        somebody else holds: a program other than that of the later, replayed calls.
        """
        try:
            return list(self.run(*inputs, enable_io_processing=False))
        finally:
            self.env.clear()

    def run_node(self, n: torch.fx.Node) -> Any:
        """One call."""
        if n.op != "call_function":
            return super().run_node(n)
        if n not in self._lines:
            self._lines[n] = user_line_of(n)
        with in_place_of_frames(self._lines[n]):
            return super().run_node(n)


def user_line_of(node: torch.fx.Node) -> str:
    """``file:line`` of the call in the user's program that a node comes from; may be empty."""
    trace = node.meta.get("stack_trace") or ""
    for text in reversed(trace.splitlines()):
        words = text.strip().split('"')
        if text.lstrip().startswith('File "') and len(words) > 2:
            line = words[2].removeprefix(", line ").partition(",")[0].strip()
            return f"{words[1]}:{line}"
    return ""


def _take_constants(module: torch.fx.GraphModule) -> list[Any]:
    """Make the tensors that a graph holds inputs of it, after its own; their values."""
    nodes = [node for node in module.graph.nodes if node.op == "get_attr"]
    last = [node for node in module.graph.nodes if node.op == "placeholder"][-1:]
    values: list[Any] = []
    for node in nodes:
        value = getattr(module, str(node.target), None)
        if not isinstance(value, torch.Tensor):
            continue
        place = (
            module.graph.inserting_after(last[0])
            if last
            else module.graph.inserting_before(next(iter(module.graph.nodes)))
        )
        with place:
            given = module.graph.placeholder(f"constant_{len(values)}")
        last = [given]
        given.meta = dict(node.meta)
        node.replace_all_uses_with(given)
        module.graph.erase_node(node)
        values.append(value)
    if values:
        module.recompile()
    return values
