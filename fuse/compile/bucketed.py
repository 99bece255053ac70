"""A graph of any size, run at the size of a bucket: see ``fuse.compile.buckets``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fuse.compile.buckets import bucket, refusal
from fuse.compile.graph import Graph, Kind
from fuse.compile.padding import Padded, lengthened
from fuse.compile.runner import Runner
from fuse.compile.sized import OneSizeEach
from fuse.compile.symbols import Symbol, symbols_of


class _PaddedRunner(Runner):
    """Makes a graph's calls at a bucket's size; its last input is the true size."""

    def __init__(self, module: torch.fx.GraphModule, symbol: Symbol) -> None:
        super().__init__(module)
        self._padded = Padded(module, symbol)
        self._size: Any = None

    def all(self, inputs: list[Any]) -> list[Any]:
        """The results at the bucket's size."""
        *inputs, self._size = inputs
        return super().all(inputs)

    def function(self, node: torch.fx.Node) -> Callable[..., Any]:
        """A call with padding behind what it reads along."""
        return lambda *args, **kwargs: self._padded.call(node, self._size, args, kwargs)


class AnySize:
    """Runs an inference graph with symbolic sizes: at those of buckets once one of them changes."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self._module = module
        self._plain: Graph | OneSizeEach = Graph(module, Kind.INFERENCE)
        self._places = symbols_of(module)
        self._first: dict[Any, int] | None = None
        self._changing: Bucketed | None = None
        self._decided = False

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """The results on these arguments, which the list holds no longer afterwards."""
        if not self._decided:
            self._look(arguments)
        if self._changing is not None and self._changing.size_of(arguments) > 0:
            return self._changing(arguments)
        return self._plain(arguments)

    def _look(self, arguments: list[Any]) -> None:
        sizes = {
            symbol: int(arguments[at] if dim is None else arguments[at].shape[dim]) - more
            for symbol, (at, dim, more) in self._places.items()
        }
        if self._first is None and len(sizes) > 1:
            self._first = sizes  # which of them changes is not known yet
            return
        first = self._first or {}
        changed = [symbol for symbol, size in sizes.items() if first.get(symbol) != size]
        if not changed:
            return
        self._decided = True
        reason = "several sizes change" if len(changed) > 1 else None
        symbol = Symbol(changed[0])
        reason = reason or refusal(self._module, symbol)
        if reason is None:
            self._changing = Bucketed(self._module, symbol, self._places[changed[0]])
        else:
            self._plain = OneSizeEach(self._plain, self._module, reason)


class Bucketed:
    """Runs an inference graph with one size that changes: one executable a bucket."""

    def __init__(
        self, module: torch.fx.GraphModule, symbol: Symbol, place: tuple[int, int | None, int]
    ) -> None:
        given = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
        output = next(node for node in module.graph.nodes if node.op == "output")
        made = [getattr(node, "meta", {}).get("val") for node in output.args[0]]
        self._place = place
        self._inputs = [_growth(symbol, value) for value in given]
        self._outputs = [_growth(symbol, value) for value in made]
        # Memory for results that grow, so that they can be lengthened in place when they come back.
        grown = [more for dim, more in (*self._inputs, *self._outputs) if dim is not None]
        self._room = max(grown, default=0)
        self._graph = Graph(module, Kind.INFERENCE, _PaddedRunner(module, symbol))

    def size_of(self, arguments: list[Any]) -> int:
        """The symbol's value."""
        at, dim, more = self._place
        return int(arguments[at] if dim is None else arguments[at].shape[dim]) - more

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """The results on these arguments, which the list holds no longer afterwards."""
        size = self.size_of(arguments)
        length = bucket(size)
        with torch.no_grad():
            inputs = [
                one if more is None
                else length + more if dim is None
                else lengthened(one, dim, length + more, self._room - more)
                for one, (dim, more) in zip(arguments, self._inputs, strict=True)
            ]  # fmt: skip
            arguments.clear()
            devices = (one.device for one in inputs if isinstance(one, torch.Tensor))
            inputs.append(torch.tensor(size, device=next(devices, torch.device("tpu"))))
            # They outlive the call, as they mostly do at its caller's: memory that a graph may
            # reuse at some calls and not at others takes a second program.
            results = self._graph(list(inputs))
            return [
                one if more is None
                else size + more if dim is None
                else one.narrow(dim, 0, size + more)
                for one, (dim, more) in zip(results, self._outputs, strict=True)
            ]  # fmt: skip


def _growth(symbol: Symbol, value: Any) -> tuple[Any, Any]:
    """Where an input or result grows, and by how much it is longer than the symbol."""
    if isinstance(value, torch.SymInt):
        return None, symbol.extra(value)
    dims = symbol.growing(value)
    return (dims[0], symbol.extra(value.shape[dims[0]])) if dims else (None, None)
