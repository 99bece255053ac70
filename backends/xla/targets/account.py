"""What an optimised program costs: a walk over what it runs, loops and branches counted.

What one instruction costs is each target's own: see ``tpu/costs.py`` and ``gpu/costs.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from fuse.backends.estimates import Cost
from fuse.backends.xla.targets.hlo import FREE, Instruction, Program

Read = Callable[[Program, str, Instruction], Cost | None]
"""The cost of one execution of an instruction, which is in the computation of that name; ``None``
where there is no figure."""

_FREE_CALLS: Final = re.compile(r"X64\w+|AllocateBuffer|ConcatBitcast|Sharding")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_BRANCHES = re.compile(
    r"(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.\-]+))"
)
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")


@dataclass(slots=True)
class Sums:
    """What a walk over a program finds; see ``Estimate`` for the fields."""

    costs: list[Cost]
    unestimated: Counter[str]
    unknown_loops: int = 0

    @property
    def cycles(self) -> int:
        """All estimates together."""
        return sum(cost.cycles for cost in self.costs)

    @property
    def weight(self) -> tuple[int, int, float]:
        """What branches are compared by: cycles where there are any, then bytes, then work."""
        return (
            self.cycles,
            sum(cost.nbytes for cost in self.costs),
            sum(cost.flops for cost in self.costs),
        )


def sums(program: Program, read: Read) -> Sums:
    """The costs of everything that runs, loops counted as often as they run."""
    found = Sums([], Counter())
    _walk(program, program.entry, 1, found, read)
    return found


def sums_of(program: Program, computation: str, one: Instruction, read: Read) -> Sums:
    """The costs of one instruction, which is in that computation, and of what it calls."""
    found = Sums([], Counter())
    _add(program, computation, one, 1, found, read)
    return found


def _walk(program: Program, name: str, times: int, found: Sums, read: Read) -> None:
    for one in program.computations.get(name, ()):
        _add(program, name, one, times, found, read)


def _add(
    program: Program, name: str, one: Instruction, times: int, found: Sums, read: Read
) -> None:
    cost = read(program, name, one)
    if cost is not None:
        found.costs.append(_scaled(cost, times))
    elif one.opcode == "while":
        trips = trips_of(program, one)
        found.unknown_loops += trips is None
        for computation in one.called():
            _walk(program, computation, times * (trips or 1), found, read)
    elif one.opcode == "conditional":
        _walk_branches(program, one, times, found, read)
    elif one.opcode in ("call", "async-start"):
        for computation in one.called():
            _walk(program, computation, times, found, read)
    elif one.opcode not in FREE and not _FREE_CALLS.fullmatch(one.target()):
        found.unestimated[_kind(program, one)] += 1


def _scaled(cost: Cost, times: int) -> Cost:
    return replace(
        cost,
        cycles=cost.cycles * times,
        flops=cost.flops * times,
        nbytes=cost.nbytes * times,
        times=cost.times * times,
    )


def trips_of(program: Program, loop: Instruction) -> int | None:
    """How often a loop runs: what the compiler notes, or the bound that its counter meets.

    Counters start at 0 and count in ones: JAX writes its loops so.
    """
    noted = _TRIPS.search(loop.line)
    if noted:
        return int(noted[1])
    condition = _CONDITION.search(loop.line)
    lines = program.computations.get(condition[1], ()) if condition else ()
    constants = {one.name: one.line.partition(")")[0] for one in lines if one.opcode == "constant"}
    root = next((one for one in lines if one.root), None)
    if root is None or root.opcode != "compare" or "direction=LT" not in root.line:
        return None
    bound = constants.get(root.line.partition(")")[0].rpartition("%")[2], "")
    return int(bound) if bound.isdigit() else None


def _walk_branches(program: Program, one: Instruction, times: int, found: Sums, read: Read) -> None:
    """The dearest branch counts."""
    names: list[str] = []
    for several, single in _BRANCHES.findall(one.line):
        names += [name.strip().lstrip("%") for name in several.split(",")] if several else [single]
    branches = []
    for name in names:
        branch = Sums([], Counter())
        _walk(program, name, times, branch, read)
        branches.append(branch)
    if branches:
        dearest = max(branches, key=lambda branch: branch.weight)
        found.costs += dearest.costs
        found.unestimated += dearest.unestimated
        found.unknown_loops += dearest.unknown_loops


def _kind(program: Program, one: Instruction) -> str:
    """An opcode, with the name of what is called or fused where it says more."""
    if one.target():
        return f"{one.opcode} {one.target()}"
    if one.opcode != "fusion":
        return one.opcode
    name = one.name.rstrip(".0123456789")
    inside = [other for called in one.called() for other in program.computations.get(called, ())]
    roots = [other.opcode for other in inside if other.root]
    return f"fusion {roots[0] if name == 'fusion' and roots else name}"
