"""A graph of torch.compile as one call: tensors in, tensors out.

The first time it is called at a place of the stream, its operations are made one by one, and
the native core remembers where they led (``csrc/tracing/captured_graph.h``). From then on a call
there is one step of the recorder, whatever the number of its operations; but for operators of
others, which may read more than their arguments: a graph with one is made operation by operation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from fuse.backends.functions import is_function
from fuse.compile.assertions import take_assertions
from fuse.compile.counts import COUNTS
from fuse.compile.runner import Runner
from fuse.device import lazy
from fuse.device.composites.assertion import ASSERTIONS

PATIENCE = 4
"""Captures that may fail before a graph is made operation by operation for good."""
FUNCTIONS = frozenset({"aten", "prim", "prims", "torch_attn"})
"""Namespaces of operators that compute nothing but a function of their arguments."""


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
        other = min(_operators_of_others(module), default="")
        self._never = f"{other} may read more than its arguments" if other else ""
        self._asserts = take_assertions(module)
        self._constants = _take_constants(module)
        self._run = runner or Runner(module)
        self._core = lazy.core()
        self._ends = kind is Kind.INFERENCE
        self._handle = self._core.CompiledGraph(self._ends)
        self._patience = 0 if self._never else PATIENCE
        COUNTS.graphs[kind.value] += 1

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """The results on these arguments, which the list holds no longer afterwards."""
        COUNTS.calls += 1
        inputs = arguments + self._constants if self._constants else arguments
        results = self._core.replay(self._handle, inputs)
        if results is None or results is False:
            # A replay shows its operations to no mode, so neither does this: selective
            # checkpointing compares what it sees in the forward pass with what is computed again.
            with torch.no_grad(), _disable_current_modes():
                results = self._record(inputs) if results is None else self._uncompiled(inputs)
        # Activations die here unless somebody else holds them: their memory is reused.
        inputs.clear()
        arguments.clear()
        state = results.pop() if self._asserts else None
        if self._ends:
            self._core.cut("compiled")
        if state is not None:
            ASSERTIONS.add(state)
        return results

    def _uncompiled(self, inputs: list[Any]) -> list[Any]:
        """Its executables are being made; till they are there its calls run uncompiled."""
        try:
            return self._run.all(inputs)
        finally:
            self._core.end_uncompiled()

    def _record(self, inputs: list[Any]) -> list[Any]:
        if self._patience == 0 or not self._core.begin_capture(self._handle, inputs):
            self._count_by_operation(self._never)
            return self._run.all(inputs)
        try:
            results = self._run.all(inputs)
        except BaseException:
            self._core.end_capture(None, inputs, [])
            raise
        reason = self._core.end_capture(self._handle, inputs, results)
        if reason:
            self._count_by_operation(reason)
            self._patience -= 1
        else:
            COUNTS.captures += 1
            self._patience = PATIENCE
        return results

    def _count_by_operation(self, reason: str) -> None:
        COUNTS.by_operation += 1
        if reason:
            COUNTS.reasons[reason] += 1


def _operators_of_others(module: torch.fx.GraphModule) -> Iterator[str]:
    """Operators of other libraries' in a graph and the graphs within it, by their names.

    Some are an argument of the operator that calls them, as those are that write.
    """
    graphs = [part.graph for part in module.modules() if isinstance(part, torch.fx.GraphModule)]
    for node in (node for graph in graphs for node in graph.nodes):
        for value in (node.target, *tree_leaves((node.args, node.kwargs))):
            if not isinstance(value, torch._ops.OpOverload) or value.namespace in FUNCTIONS:
                continue
            if not is_function(value._schema.name):
                yield value._schema.name


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
