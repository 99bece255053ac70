"""What a compiler for another machine says of a chunk, and what that machine can do, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

FORMAT = 3
KERNEL: Final = "kernel"
"""The opcode of a cost that is computed from the work that a kernel states."""
PICOSECONDS: Final = 1e12
"""Ticks a second of an account that counts no cycles."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Another way to compile a chunk, to say what it would gain. It is never run.

    Attributes:
        precision: of float32 products, as ``torch.set_float32_matmul_precision``; empty for the
            one that is set.
        convolutions: of float32 convolutions, by the same names; empty for the one that is set.
        scheduled: only as far as the compiler's schedule, of a step of several devices: see
            ``Estimate.scheduled``.
    """

    precision: str = ""
    convolutions: str = ""
    scheduled: bool = False


AS_IT_IS = Variant()


@dataclass(frozen=True, slots=True)
class Cost:
    """One instruction of the optimised program.

    Attributes:
        name: the compiler's name of it.
        opcode: ``fusion``, ``copy``, ``convolution``, ...; ``KERNEL``.
        cycles: the compiler's estimate, times the trips of the loops around it; of a kernel, which
            it gives none, what its stated work takes; 0 where the compiler gives none of
            anything, and what it costs is a bound from the next ones.
        node: position in the chunk of the operation that it is named after; ``None`` where the
            compiler made it up.
        nodes: positions of all operations that have a part in it, ascending.
        flops: its operations, an addition and a multiplication each counted, in all trips.
        unit: which of the machine's peaks bounds these; empty without any.
        nbytes: what it reads from the machine's memory and writes there, in all trips.
        times: the trips.
    """

    name: str
    opcode: str
    cycles: int
    node: int | None
    nodes: tuple[int, ...]
    flops: float = 0.0
    unit: str = ""
    nbytes: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class Transfer:
    """A collective of a joined step, in the compiler's schedule.

    Attributes:
        kind: XLA's name, ``all-gather`` and so on.
        nbytes: bytes of the whole array, all shards together.
        ranks: devices of one group.
        begins: seconds after the step's start.
        takes: seconds that its bytes take at the links' peak.
        exposed: seconds of these in which nothing is computed.
    """

    kind: str
    nbytes: int
    ranks: int
    begins: float
    takes: float
    exposed: float

    def ended(self, exposed: float) -> Transfer:
        """The same, waited for."""
        return replace(self, exposed=exposed)


@dataclass(frozen=True, slots=True)
class Held:
    """An array as it lies on the device: its text with the tiled layout, and bytes.

    ``padded`` counts what the tiles occupy, ``nbytes`` what the elements need.
    """

    text: str
    nbytes: int
    padded: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the compiler of a target says of one chunk.

    Attributes:
        error: why it refuses the chunk; empty where it compiled. Then everything else is zero.
        kind: of an error: ``refused`` (it said so), ``aborted`` (it ended its process) or
            ``time-out``.
        cycles: sum of those of the costs.
        costs: instructions that the compiler gives an estimate of, and kernels that state theirs.
        unestimated: opcode -> how many instructions it gives none of. They are not in ``cycles``.
        unknown_loops: loops whose number of trips it does not know: counted as one trip.
        flops, bytes_accessed: of its cost analysis; what kernels state is added to ``flops``.
        arguments, results: the arrays that go in and out, in order.
        temporary_bytes, alias_bytes, code_bytes: of its memory analysis.
        seconds: what compiling took.
        transfers: the collectives of a joined step, in the order of their beginnings.
        step_seconds: a joined step's time: computing, and what is exposed of the transfers.
        scheduled: no machine code was made, so cycles are what instructions take at least at the
            machine's peaks, and what the code takes of the memory is not counted.
        options: of the compiler, beside its defaults.
    """

    error: str = ""
    kind: str = ""
    cycles: int = 0
    costs: tuple[Cost, ...] = ()
    unestimated: dict[str, int] = field(default_factory=dict)
    unknown_loops: int = 0
    flops: float = 0.0
    bytes_accessed: float = 0.0
    arguments: tuple[Held, ...] = ()
    results: tuple[Held, ...] = ()
    temporary_bytes: int = 0
    alias_bytes: int = 0
    code_bytes: int = 0
    seconds: float = 0.0
    transfers: tuple[Transfer, ...] = ()
    step_seconds: float = 0.0
    scheduled: bool = False
    options: Mapping[str, str | bool] = field(default_factory=dict)

    @property
    def kernel_cycles(self) -> int:
        """Those of kernels, a part of ``cycles``."""
        return sum(cost.cycles for cost in self.costs if cost.opcode == KERNEL)

    @property
    def peak_bytes(self) -> int:
        """Device memory while it runs: arguments, results that are not arguments, temporaries."""
        held = sum(one.padded for one in (*self.arguments, *self.results))
        return held - self.alias_bytes + self.temporary_bytes + self.code_bytes

    @property
    def padding(self) -> float:
        """The share of the arrays in and out that is padding, 0 to 1."""
        padded = sum(one.padded for one in (*self.arguments, *self.results))
        needed = sum(one.nbytes for one in (*self.arguments, *self.results))
        return 1 - needed / padded if padded else 0.0

    def to_bytes(self) -> bytes:
        """As JSON, for a cache."""
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Estimate:
        """The inverse of ``to_bytes``; raises ``ValueError`` for other bytes."""
        found: Any = json.loads(data)
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError("these bytes are no stored estimate")
        try:
            costs = tuple(
                Cost(**(one | {"nodes": tuple(one["nodes"])})) for one in found.pop("costs")
            )
            arguments, results = (
                tuple(Held(**one) for one in found.pop(name)) for name in ("arguments", "results")
            )
            transfers = tuple(Transfer(**one) for one in found.pop("transfers", ()))
            return Estimate(
                costs=costs, arguments=arguments, results=results, transfers=transfers, **found
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"a stored estimate of another shape: {error}") from error


@dataclass(frozen=True, slots=True)
class Machine:
    """Published peaks of one device of a target, and the account that they give.

    What a program costs is counted in ticks: cycles where the machine's compiler estimates these,
    picoseconds where it does not. Those are a roofline: each instruction takes as long as its
    operations at their peak or its bytes at the peak of the memory, whichever is longer.

    Attributes:
        name: the generation, such as ``v5e``.
        flops: bfloat16 operations a second.
        bandwidth: bytes a second from and to its memory.
        memory: bytes of it.
        clock: cycles a second of the compiler's estimates; 0 where it makes none.
        source: where the figures are published.
        lanes, sublanes: the tile in which 32-bit arrays lie; 0 where they lie in none.
        matrix: the width of its matrix units; 0 where no width is better than others.
        sparse_cores: units for gathers and scatters beside the vector unit.
        emulates: dtypes of 64 bits that it has no registers for.
        peaks: operations a second by unit; see ``Cost.unit``.
    """

    name: str
    flops: float
    bandwidth: float
    memory: int
    clock: float
    source: str
    lanes: int = 0
    sublanes: int = 0
    matrix: int = 0
    sparse_cores: int = 0
    emulates: tuple[str, ...] = ()
    peaks: Mapping[str, float] = field(default_factory=dict)

    @property
    def counts_cycles(self) -> bool:
        """Whether ticks are cycles that the compiler estimated."""
        return self.clock > 0

    @property
    def rate(self) -> float:
        """Ticks a second."""
        return self.clock or PICOSECONDS

    def seconds(self, ticks: float) -> float:
        """Ticks as seconds."""
        return ticks / self.rate

    def bounds(self, cost: Cost) -> tuple[float, float]:
        """Seconds that an instruction's operations take at least, and that its bytes do."""
        peak = self.peaks.get(cost.unit, self.flops)
        return cost.flops / peak, cost.nbytes / self.bandwidth

    def ticks(self, cost: Cost) -> int:
        """What one instruction costs."""
        if self.counts_cycles:
            return cost.cycles
        return round(max(self.bounds(cost)) * PICOSECONDS)

    def total(self, estimate: Estimate) -> int:
        """What a chunk costs, in ticks."""
        if self.counts_cycles:
            return estimate.cycles
        return sum(self.ticks(cost) for cost in estimate.costs)
