"""When a scheduled program computes and when it sends: what of a collective hides behind computing.

The compiler's schedule is the order of its instructions. Computing takes the estimated cycles, and
what moves between chips the time of its bytes at the links' peak. What the compiler has made
asynchronous runs beside what stands between its start and its end: as two instructions, or as a
fusion that starts it and one, some products later, that waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fuse.backends.estimates import Machine, Transfer
from fuse.backends.xla.targets.account import Read, sums_of, trips_of
from fuse.backends.xla.targets.hlo import Instruction, Program, arrays
from fuse.backends.xla.tpu.links import Slice, group_of

KINDS: Final = (
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute",
)  # fmt: skip
_CALLED = re.compile(r"(?:calls|body|to_apply|called_computations?)=\{?%?([\w.\-]+)")
_NAME = re.compile(r'(?:chain_id="|channel_id=)(\d+)')


class Timeline:
    """A walk over the instructions in order, those of a loop as often as it runs.

    Times are seconds from the step's start.
    """

    def __init__(self, program: Program, machine: Machine, slice_: Slice, read: Read) -> None:
        """Walks at once."""
        self.now = 0.0
        self.transfers: list[Transfer] = []
        self._program, self._machine, self._slice, self._read = program, machine, slice_, read
        self._free = 0.0  # the links, from then on
        self._open: dict[str, int] = {}  # name or channel -> its place among the transfers
        self._walk(program.entry)

    @property
    def exposed(self) -> float:
        """Seconds in which nothing is computed since something is sent."""
        return sum(one.exposed for one in self.transfers)

    def _walk(self, computation: str) -> None:
        self._computation = computation
        for one in self._program.computations.get(computation, ()):
            if one.opcode == "while" and any(map(self._sends, one.called())):
                for name in one.called() * (trips_of(self._program, one) or 1):
                    self._walk(name)
                self._computation = computation
            else:
                self._step(one)

    def _sends(self, computation: str) -> bool:
        """Whether a collective is in a computation, or in what that calls."""
        return any(
            _kind(one.opcode) or any(map(self._sends, one.called()))
            for one in self._program.computations.get(computation, ())
        )

    def _step(self, one: Instruction) -> None:
        kind = _kind(one.opcode)
        inner = self._within(one)
        if kind and one.opcode.endswith("-done"):
            self._end(_first_operand(one))
        elif kind:
            self._begin(one.name, kind, one, waits=not one.opcode.endswith("-start"))
        elif inner is not None and _calls(inner, "AsyncCollectiveDone"):
            self._compute(one)
            self._end(_channel(inner))
        elif inner is not None and _calls(inner, "AsyncCollectiveStart"):
            self._begin_within(inner, waits=False)
            self._compute(one)
        elif inner is not None and one.opcode == "fusion" and _channel(inner) not in self._open:
            self._compute(one)
            self._begin_within(inner, waits=True)
        else:
            self._compute(one)

    def _compute(self, one: Instruction) -> None:
        cycles = sums_of(self._program, self._computation, one, self._read).cycles
        self.now += self._machine.seconds(cycles)

    def _within(self, one: Instruction) -> list[Instruction] | None:
        """What a fusion does, where a collective is among it."""
        for name in _CALLED.findall(one.line):
            found = list(self._program.computations.get(name, ()))
            if any(_kind(inner.opcode) for inner in found):
                return found
        return None

    def _begin_within(self, inner: Sequence[Instruction], waits: bool) -> None:
        for one in inner:
            kind = _kind(one.opcode)
            if kind:
                # A sum of which each device keeps its part is a reduce-scatter in one fusion.
                parts = any(other.opcode == "dynamic-slice" for other in inner)
                scatters = kind == "all-reduce" and parts
                name = _channel(inner)
                self._begin(name, "reduce-scatter" if scatters else kind, one, waits)

    def _begin(self, name: str, kind: str, one: Instruction, waits: bool) -> None:
        group = group_of(one.line, len(self._slice.places))
        held = arrays(one.shape)
        nbytes = sum(array.nbytes for array in held)
        if one.opcode.endswith("-start") and len(held) > 1:
            nbytes = max(array.nbytes for array in held)  # a tuple of operands and results
        if kind == "reduce-scatter" and one.opcode.startswith("reduce-scatter"):
            nbytes *= len(group)
        begins = max(self.now, self._free)
        takes = self._slice.seconds(kind, nbytes, group)
        self._free = begins + takes
        exposed = self._free - self.now if waits else 0.0
        self.now = max(self.now, self._free) if waits else self.now
        if not waits:
            self._open[name] = len(self.transfers)
        self.transfers.append(Transfer(kind, nbytes, len(group), begins, takes, exposed))

    def _end(self, name: str) -> None:
        place = self._open.pop(name, None)
        if place is not None:
            one = self.transfers[place]
            ends = one.begins + one.takes
            self.transfers[place] = one.ended(max(ends - self.now, 0.0))
            self.now = max(self.now, ends)


def _kind(opcode: str) -> str:
    name = opcode.removesuffix("-start").removesuffix("-done")
    return name if name in KINDS else ""


def _calls(inner: Sequence[Instruction], target: str) -> bool:
    return any(f'custom_call_target="{target}"' in one.line for one in inner)


def _channel(inner: Sequence[Instruction]) -> str:
    """What names a collective in fusions: they have it by parts."""
    for one in inner:
        found = _NAME.findall(one.line) if _kind(one.opcode) else None
        if found:
            return f"{_kind(one.opcode)} {found[-1]}"  # a chain's, where it has one
    return ""


def _first_operand(one: Instruction) -> str:
    return one.line.partition(")")[0].split(",")[0].strip().lstrip("%")
