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
from fuse.compile.lines import user_line_of
from fuse.device import lazy
from fuse.device.composites.assertion import ASSERTIONS
from fuse.trace.source import in_place_of_frames

PATIENCE = 4
"""Captures that may fail before a graph is made operation by operation for good."""
FUNCTIONS = frozenset({"aten", "prim", "prims", "torch_attn"})
"""Namespaces of operators that compute nothing but a function of their arguments."""


Order = tuple[tuple[int, ...], tuple[int, ...]]
"""Sizes and strides."""


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
        results: list[Any] | None = self._core.replay(self._handle, inputs)
        if results is None:
            results = self._record(inputs)
        # Activations die here unless somebody else holds them: their memory is reused.
        inputs.clear()
        arguments.clear()
        state = results.pop() if self._asserts else None
        if self._ends:
            self._core.cut("compiled")
        if state is not None:
            ASSERTIONS.add(state)
        return results

    def _record(self, inputs: list[Any]) -> list[Any]:
        # A replay shows its operations to no mode, so neither does this: selective checkpointing
        # compares what it sees in the forward pass with what is computed again.
        with torch.no_grad(), _disable_current_modes():
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


class Runner(torch.fx.Interpreter):
    """Makes a graph's calls; each knows the user's line that it comes from."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self._known: dict[torch.fx.Node, tuple[str, list[Order | None]]] = {}

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
        if n not in self._known:
            self._known[n] = user_line_of(n), inferred_orders(n)
        line, orders = self._known[n]
        with in_place_of_frames(line):
            return laid(super().run_node(n), orders)


def inferred_orders(node: torch.fx.Node) -> list[Order | None]:
    """The order of memory of each of a call's results that the graph was traced with.

    ``None`` of what is no tensor or has symbolic sizes: to compare them would fix them. Empty where
    a result shares memory with an argument, and lies as that does.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or any(
        one.alias_info is not None for one in node.target._schema.returns
    ):
        return []
    inferred = node.meta.get("val")
    return [
        _order(one) for one in (inferred if isinstance(inferred, (list, tuple)) else [inferred])
    ]


def _order(inferred: object) -> Order | None:
    if not isinstance(inferred, torch.Tensor):
        return None
    order = tuple(inferred.shape), inferred.stride()
    return order if all(type(one) is int for part in order for one in part) else None


def laid(result: Any, orders: list[Order | None]) -> Any:
    """What a call made, in those orders of memory.

    Views that follow were chosen for them. PyTorch infers for some operators another order than its
    CPU kernels have, whose order results have here.
    """
    if type(result) not in (list, tuple):
        return _laid(result, orders[0]) if len(orders) == 1 else result
    if len(result) != len(orders):
        return result
    return type(result)(map(_laid, result, orders))


def _laid(result: object, order: Order | None) -> Any:
    if order is None or not isinstance(result, torch.Tensor) or result.shape != order[0]:
        return result
    pairs = zip(result.shape, result.stride(), order[1], strict=True)
    if all(extent < 2 or own == other for extent, own, other in pairs):
        return result
    made = torch.empty_strided(*order, dtype=result.dtype, device=result.device)
    return made.copy_(result)


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
