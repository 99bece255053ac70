"""``fuse.compare``: a program's operations on two backends, one by one, from the same inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuse import config
from fuse.backends.base import Backend
from fuse.backends.numpy import views
from fuse.backends.registry import get_backend
from fuse.cache.errors import CacheMissError
from fuse.device import lazy
from fuse.engine.engine import Engine
from fuse.engine.executables import key_of
from fuse.engine.runnable import Runnable, local_chunk
from fuse.errors import ConfigError, describe
from fuse.plan.plan import PlannedChunk
from fuse.plan.scalars import compact_scalars
from fuse.report.difference import Difference, Gap, Summary, gap, tolerances
from fuse.trace.functional import qualified_name
from fuse.trace.node import HostArg, Leaf, Node, NumberArg
from fuse.trace.spec import Layout, View


@dataclass(frozen=True, slots=True)
class Skipped:
    """An operator that was not compared: how often, and why."""

    operator: str
    count: int
    reason: str

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.operator}{times}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What ``fuse.compare`` found; ``print`` it.

    Attributes:
        backends: both names; the values of the first one fed both.
        operations: how many operations were compared, up to and with the first that differs.
        traces: how many traces they were recorded in.
        skipped: operators that a backend cannot run, in the order of their first use.
        first: the first operation whose results differ, or ``None``.
    """

    backends: tuple[str, str]
    operations: int
    traces: int
    skipped: tuple[Skipped, ...]
    first: Difference | None

    @property
    def agrees(self) -> bool:
        """Whether no operation that was compared differs."""
        return self.first is None

    def __str__(self) -> str:
        count = f"{self.operations} operation{'' if self.operations == 1 else 's'}"
        traces = f"{self.traces} trace{'' if self.traces == 1 else 's'}"
        lines = [f"compared {' with '.join(self.backends)}: {count} in {traces}"]
        if not self.operations and not self.skipped:
            lines.append("nothing was recorded: does the program use tensors on the tpu device?")
        lines.append("no difference" if self.first is None else str(self.first))
        lines += [f"skipped {entry}" for entry in self.skipped]
        return "\n".join(lines)


def compare(
    fn: Callable[..., Any],
    *args: Any,
    backends: Sequence[str] = ("xla", "numpy"),
    rtol: float | None = None,
    atol: float | None = None,
) -> Comparison:
    """Call ``fn(*args)`` and run each operation it records on both ``backends``.

    The call happens once, as it would without this function, in the current mode and on the
    current backend. Each operation then runs on its own on either backend, from the same
    inputs: what the first backend made of the operations before it, so that one difference
    does not bring about the next. Random operations get the same seed and offset. Comparing
    stops at the first operation whose results differ; the program goes on.

    What a program leaves open may differ rightly: the order of equal elements in an unstable
    sort, signs of singular vectors. What fusing changes is not seen here: compare the results
    of ``fuse.set_mode("strict")`` and ``"fused"`` for that.

    Args:
        fn: a program on the device. What it recorded may have been cut, read by the host,
            written in place or differentiated; what ran on the host is counted as skipped.
            What it raises is raised here.
        args: positional arguments of ``fn``.
        backends: two names.
        rtol: the relative tolerance, given together with ``atol``; ``torch.testing``'s of the
            result's dtype where neither is. It holds for floating-point and complex results;
            integers and bools have to be equal, and a NaN is equal to a NaN.
        atol: the absolute tolerance, likewise.

    Returns:
        What was found: ``print`` it, or ask ``agrees``, ``first`` and ``skipped``.

    Raises:
        ConfigError: a backend is unknown, they are not two, or one tolerance is given without the
            other.

    Example:
        ```python
        x = torch.randn(4, 4).to("tpu")
        found = fuse.compare(lambda: torch.softmax(x @ x, dim=-1))
        assert found.agrees, found
        ```
    """
    pair = _checked(backends)
    if (rtol is None) != (atol is None):
        raise ConfigError(
            describe("rtol and atol are given together", hint="give both, or neither")
        )
    core, engine = lazy.core(), lazy.engine()
    core.cut("synchronize")
    inspector = _Inspector(engine, pair, (rtol, atol))
    before = Counter(engine.host_calls.fallbacks)
    engine.inspector = inspector
    # An operation that runs uncompiled would not be recorded.
    core.set_tier(1)
    try:
        result = fn(*args)  # held until it has been computed: what nobody holds never is
        core.cut("synchronize")
    finally:
        engine.inspector = None
        lazy.bound_uncompiled(core, engine)
    del result
    inspector.count_fallbacks(Counter(engine.host_calls.fallbacks) - before)
    return inspector.outcome()


def _checked(backends: Sequence[str]) -> tuple[str, str]:
    if isinstance(backends, str) or len(backends) != 2:
        names = ", ".join(config.BACKENDS)
        raise ConfigError(
            describe(f"backends={backends!r} are not two names", hint=f"choose two of {names}")
        )
    one, other = (get_backend(name).name for name in backends)
    return one, other


class _Inspector:
    """Sees every trace just before it runs, while the arrays it starts from still exist."""

    def __init__(
        self, engine: Engine, names: tuple[str, str], given: tuple[float | None, float | None]
    ) -> None:
        self._engine = engine
        self._names = names
        self._backends = tuple(map(get_backend, names))
        for backend in self._backends:
            backend.start()
        self._given = given
        self._operations = 0
        self._traces = 0
        self._skipped: dict[tuple[str, str], int] = {}
        self._first: Difference | None = None

    def __call__(self, runnable: Runnable, leaves: Sequence[Any], scalars: bytes) -> None:
        """Compare the trace's operations; ``leaves`` are arrays of the engine's backend."""
        if self._first is not None:
            return
        trace = runnable.plan.trace
        layouts = trace.layouts()
        words = np.frombuffer(scalars, np.uint64)
        arrays = map(self._engine.backend.get, leaves)
        values = dict(zip(runnable.leaves, arrays, strict=True))
        last = {o.value: i for i, node in enumerate(trace.nodes) for o in node.operands}
        for number, node in enumerate(trace.nodes):
            call = _Call(node, values, layouts, words)
            self._first = self._compare(number, call, values)
            if self._first:
                break
            for value in {operand.value for operand in node.operands} | set(node.results()):
                if last.get(value, -1) <= number:
                    values.pop(value, None)
        self._traces += 1

    def count_fallbacks(self, found: Counter[str]) -> None:
        """Add the operators that ran on the host: they are in no trace."""
        for name, count in found.items():
            place = f"ran on the host: {self._engine.backend.name} cannot run it"
            self._skipped[qualified_name(name), place] = count

    def outcome(self) -> Comparison:
        """What was found."""
        skipped = (Skipped(name, n, why) for (name, why), n in self._skipped.items())
        return Comparison(self._names, self._operations, self._traces, tuple(skipped), self._first)

    def _compare(
        self, number: int, call: _Call, values: dict[int, np.ndarray]
    ) -> Difference | None:
        """Run one operation on both backends; ``values`` gets what it makes."""
        results: list[list[np.ndarray] | None] = []
        for backend in self._backends:
            reason = backend.reject(call.node)
            if reason is not None:
                place = qualified_name(call.node.op), f"{backend.name} cannot run it: {reason}"
                self._skipped[place] = self._skipped.get(place, 0) + 1
                results.append(None)
                continue
            try:
                results.append(self._run(backend, call))
            except CacheMissError:
                raise
            except Exception as error:  # noqa: BLE001  (whatever a backend raises is its result)
                self._operations += 1
                failure = f"{backend.name} raised {type(error).__name__}: {error}"
                return self._difference(number, call, 0, None, failure)
        one, other = results
        values |= zip(call.node.results(), one or other or (), strict=True)
        if one is None or other is None:
            return None
        self._operations += call.node.recorded
        for index, pair in enumerate(zip(one, other, strict=True)):
            found = call.gap(index, *pair, *self._given)
            if found is not None:
                return self._difference(number, call, index, found)
        return None

    def _run(self, backend: Backend, call: _Call) -> list[np.ndarray]:
        found = self._engine.executables.find(backend, call.chunk, key_of(backend, call.chunk))
        inputs = [backend.put(array, 0) for array in call.inputs]
        results = backend.execute(found.executable, call.scalars, inputs)
        return [backend.get(array) for array in results]

    def _difference(
        self, number: int, call: _Call, index: int, found: Gap | None, failure: str = ""
    ) -> Difference:
        view = call.views[index]
        return Difference(
            backends=self._names,
            operator=qualified_name(call.node.op),
            operation=number,
            trace=self._traces,
            text=str(call.original),
            source=call.node.source,
            result=index,
            dtype=view.dtype,
            shape=view.shape,
            tolerance=tolerances(view.dtype, *self._given),
            gap=found,
            failure=failure,
            inputs=tuple(call.summaries()),
            numbers=tuple(call.numbers()),
        )


class _Call:
    """One operation as a chunk of its own, with its inputs on the host."""

    def __init__(
        self,
        node: Node,
        values: dict[int, np.ndarray],
        layouts: dict[int, Layout],
        words: np.ndarray,
    ) -> None:
        self.original = node
        (self.node,), slots = compact_scalars((node,))
        # Memory that nothing was written to has no value: both backends read it as zeros.
        read = [v for v in dict.fromkeys(o.value for o in node.operands) if v in values]
        inputs = tuple(Leaf(value, layouts[value]) for value in read)
        made = tuple(node.results())
        self.chunk = local_chunk(PlannedChunk((self.node,), inputs, made, (), slots), {})
        self.inputs = [values[value] for value in read]
        self.scalars = words[list(slots)].tobytes()
        self.views = self._views()
        self._values = values
        self._layouts = [output.layout for output in node.outputs]
        self._layouts += [write.layout for write in node.writes]

    def _views(self) -> list[View]:
        """Each result as a tensor sees it: a whole new buffer, or the region written."""
        written = self.node.writes
        found = [output.view for output in self.node.outputs]
        for write in written:
            offset = self._offset(self.node.operands[write.operand].place, write.view.offset)
            found.append(View(write.view.dtype, write.view.shape, write.view.strides, offset))
        return found

    def gap(
        self,
        index: int,
        one: np.ndarray,
        other: np.ndarray,
        rtol: float | None,
        atol: float | None,
    ) -> Gap | None:
        """How two values of result ``index`` differ: in the tensor's region, else beside it."""
        view, layout = self.views[index], self._layouts[index]
        found = gap(
            views.read(one, view), views.read(other, view), *tolerances(view.dtype, rtol, atol)
        )
        if found is not None or view.dtype != layout.dtype:
            return found
        return gap(one, other, *tolerances(layout.dtype, rtol, atol))

    def summaries(self) -> Iterator[Summary]:
        """Every tensor operand, as the operation reads it."""
        for operand in self.node.operands:
            name = f"%{operand.value}"
            view = operand.view
            if operand.value in self._values:
                offset = self._offset(operand.place, view.offset)
                yield Summary.of(name, views.read(self._values[operand.value], view, offset))
            else:
                yield Summary.of(name, np.zeros(view.shape, view.dtype))

    def numbers(self) -> Iterator[str]:
        """What the text of the operation leaves out: numbers that vary, seed and offset."""
        for arg in self.node.args:
            for item in arg if isinstance(arg, tuple) else (arg,):
                if isinstance(item, (NumberArg, HostArg)):
                    slot = self.node.slot_of(item.place)
                    if slot is not None:
                        kind = np.float64 if isinstance(item.number, float) else np.int64
                        yield f"number #{item.place} = {self._words(kind)[slot].item()!r}"
        if self.node.random is not None:
            seed, offset = self._words(np.uint64)[self.node.random :][:2].tolist()
            yield f"seed {seed}, offset {offset}"

    def _offset(self, place: int, known: int) -> int:
        slot = self.node.slot_of(place)
        return known if slot is None else int(self._words(np.int64)[slot])

    def _words(self, dtype: type[np.generic]) -> np.ndarray:
        return np.frombuffer(self.scalars, dtype)
