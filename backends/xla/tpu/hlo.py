"""Reads the text of an optimised TPU program: instructions, estimated cycles, tiled layouts.

The format is XLA's own text of HLO. What the TPU's compiler adds: ``estimated_cycles`` in an
instruction's ``backend_config``, and tiles in layouts, as in ``f32[128,100]{0,1:T(8,128)}``. The
numbers before the colon are dimensions, from the one that is contiguous in memory outwards;
``T(8,128)`` says that the last two of these are laid out in tiles of 8 x 128. A kernel has no
estimated cycles: they are computed from the work that it states, see ``work``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from fuse.backends.estimates import KERNEL, Cost, Held, Machine
from fuse.backends.xla.tpu.work import stated

BITS: Final = {
    "pred": 8,
    **{f"{kind}{bits}": bits for kind in "su" for bits in (2, 4, 8, 16, 32, 64)},
    "bf16": 16,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
}
FREE: Final = frozenset(
    [
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "copy-start",
        "copy-done",
        "slice-start",
        "slice-done",
        "after-all",
        "opt-barrier",
        "partition-id",
        "replica-id",
    ]
)
"""Opcodes that do no work of their own; copies between memories run beside the rest."""
_FREE_CALLS: Final = re.compile(
    r'custom_call_target="(X64\w+|AllocateBuffer|ConcatBitcast|Sharding)"'
)
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r"([\w\-]+)\(")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_NODE = re.compile(r'op_name="[^"]*?/n(\d+)\.')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CALLED = re.compile(r"(?:calls|body|condition|to_apply|called_computations?)=\{?%?([\w.\-]+)")
_BRANCHES = re.compile(
    r"(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.\-]+))"
)
_SHAPE = re.compile(r"([a-z]+[0-9a-z]*)\[([\d,]*)\](?:\{([\d,]*)((?::[^}]*)?)\})?")
_TILE = re.compile(r"T\(([\d,]+)\)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation; ``line`` is all that follows the opcode."""

    name: str
    shape: str
    opcode: str
    line: str
    root: bool = False

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate of one execution, where it gives one."""
        found = _CYCLES.search(self.line)
        return int(found[1]) if found else None

    @property
    def node(self) -> int | None:
        """The position in the chunk of the node that emitted it."""
        found = _NODE.search(self.line)
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Program:
    """An optimised program: its computations by name, and which one is entered."""

    computations: dict[str, tuple[Instruction, ...]]
    entry: str

    def arguments(self) -> tuple[Held, ...]:
        """The arrays that the program takes, in order."""
        found = [one for one in self.computations[self.entry] if one.opcode == "parameter"]
        found.sort(key=lambda one: int(one.line.partition(")")[0]))
        return tuple(held for one in found for held in arrays(one.shape))

    def results(self) -> tuple[Held, ...]:
        """The arrays that the program returns, in order."""
        return arrays(next(one.shape for one in self.computations[self.entry] if one.root))


def parse(text: str) -> Program:
    """The program in ``text``; raises ``ValueError`` where there is none."""
    computations: dict[str, tuple[Instruction, ...]] = {}
    entry, name = "", ""
    lines: list[Instruction] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            name, lines = head[2], []
            entry = name if head[1] else entry
        elif line == "}" and name:
            computations[name] = tuple(lines)
            name = ""
        elif name:
            found = _INSTRUCTION.match(line)
            if found:
                lines.append(_instruction(found[2], found[3], bool(found[1])))
            elif lines:  # what a kernel says of itself has lines of its own
                lines[-1] = replace(lines[-1], line=f"{lines[-1].line}\n{line}")
    if entry not in computations:
        raise ValueError("this is no text of an HLO program: nothing is entered")
    return Program(computations, entry)


def _instruction(name: str, text: str, root: bool) -> Instruction:
    stop = _end_of_shape(text)
    shape, rest = text[:stop], text[stop:].lstrip()
    opcode = _OPCODE.match(rest)
    if opcode is None:
        raise ValueError(f"no opcode in the instruction {name} = {text[:80]}")
    return Instruction(name, shape, opcode[1], rest[opcode.end() :], root)


def _end_of_shape(text: str) -> int:
    """Where the shape at the start of ``text`` ends: a tuple's is in parentheses."""
    if not text.startswith("("):
        return text.index(" ")
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return at + 1
    raise ValueError(f"a shape without an end: {text[:80]}")


def arrays(shape: str) -> tuple[Held, ...]:
    """The arrays of a shape, a tuple's in order, as they lie in tiles."""
    return tuple(_held(found) for found in _SHAPE.finditer(shape))


def _held(found: re.Match[str]) -> Held:
    dtype, text = found[1], found[2]
    sizes = [int(size) for size in text.split(",")] if text else []
    bits = BITS.get(dtype, 8)
    tile = _TILE.search(found[4] or "")
    padded = list(sizes)
    if tile:
        tiles = [int(size) for size in tile[1].split(",")]
        order = [int(dim) for dim in (found[3] or "").split(",") if dim]
        if not sizes:
            padded = [math.prod(tiles)]
        for size, dim in zip(reversed(tiles), order, strict=False):
            padded[dim] = -(-sizes[dim] // size) * size
        if 0 < len(order) < len(tiles):
            padded[order[-1]] *= math.prod(tiles[: len(tiles) - len(order)])
    return Held(found[0], math.prod(sizes) * bits // 8, math.prod(padded) * bits // 8)


@dataclass(slots=True)
class Sums:
    """What a walk over a program finds; see ``Estimate`` for the fields."""

    costs: list[Cost]
    unestimated: Counter[str]
    unknown_loops: int = 0
    stated_flops: int = 0
    machine: Machine | None = None

    @property
    def cycles(self) -> int:
        """All estimates together."""
        return sum(cost.cycles for cost in self.costs)


def sums(program: Program, machine: Machine | None = None) -> Sums:
    """The costs of everything that runs, loops counted as often as they run.

    ``machine``: whose peaks make cycles of the work that kernels state; without it they have none.
    """
    found = Sums([], Counter(), machine=machine)
    _walk(program, program.entry, 1, found)
    return found


def sums_of(program: Program, one: Instruction, machine: Machine | None = None) -> Sums:
    """The costs of one instruction, and of what it calls."""
    found = Sums([], Counter(), machine=machine)
    _add(program, one, 1, found)
    return found


def _walk(program: Program, name: str, times: int, found: Sums) -> None:
    for one in program.computations.get(name, ()):
        _add(program, one, times, found)


def _add(program: Program, one: Instruction, times: int, found: Sums) -> None:
    called = _CALLED.findall(one.line)
    cycles = one.cycles
    if cycles is not None:
        nodes = tuple(sorted(_nodes(program, one, called)))
        found.costs.append(Cost(one.name, one.opcode, cycles * times, one.node, nodes))
    elif one.opcode == "while":
        trips = _trips(program, one)
        found.unknown_loops += trips is None
        for computation in called:
            _walk(program, computation, times * (trips or 1), found)
    elif one.opcode == "conditional":
        _walk_branches(program, one, times, found)
    elif one.opcode in ("call", "async-start"):
        for computation in called:
            _walk(program, computation, times, found)
    elif found.machine is not None and (work := stated(one.line)) is not None:
        spent = work.cycles(found.machine) * times
        nodes = () if one.node is None else (one.node,)
        found.costs.append(Cost(one.name, KERNEL, spent, one.node, nodes))
        found.stated_flops += work.flops * times
    elif one.opcode not in FREE and not _FREE_CALLS.search(one.line):
        found.unestimated[_kind(one)] += 1


def _trips(program: Program, loop: Instruction) -> int | None:
    """How often a loop runs: what the compiler notes, or the bound that its counter meets.

    Counters start at 0 and count in ones: JAX writes its loops so.
    """
    noted = _TRIPS.search(loop.line)
    if noted:
        return int(noted[1])
    condition = re.search(r"condition=%?([\w.\-]+)", loop.line)
    lines = program.computations.get(condition[1], ()) if condition else ()
    constants = {one.name: one.line.partition(")")[0] for one in lines if one.opcode == "constant"}
    root = next((one for one in lines if one.root), None)
    if root is None or root.opcode != "compare" or "direction=LT" not in root.line:
        return None
    bound = constants.get(root.line.partition(")")[0].rpartition("%")[2], "")
    return int(bound) if bound.isdigit() else None


def _walk_branches(program: Program, one: Instruction, times: int, found: Sums) -> None:
    """The dearest branch counts."""
    names: list[str] = []
    for several, single in _BRANCHES.findall(one.line):
        names += [name.strip().lstrip("%") for name in several.split(",")] if several else [single]
    branches = []
    for name in names:
        branch = Sums([], Counter(), machine=found.machine)
        _walk(program, name, times, branch)
        branches.append(branch)
    if branches:
        dearest = max(branches, key=lambda branch: branch.cycles)
        found.costs += dearest.costs
        found.unestimated += dearest.unestimated
        found.unknown_loops += dearest.unknown_loops
        found.stated_flops += dearest.stated_flops


def _kind(one: Instruction) -> str:
    """An opcode, with the name of what is called or fused where it says more."""
    target = re.search(r'custom_call_target="([^"]+)"', one.line)
    if target:
        return f"{one.opcode} {target[1]}"
    return (
        f"{one.opcode} {one.name.rstrip('.0123456789')}" if one.opcode == "fusion" else one.opcode
    )


def _nodes(program: Program, one: Instruction, called: list[str]) -> set[int]:
    found = {one.node} if one.node is not None else set()
    for name in called:
        for inner in program.computations.get(name, ()):
            found |= _nodes(program, inner, _CALLED.findall(inner.line))
    return found
