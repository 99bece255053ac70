"""Reads the text of an optimised program of XLA's: computations, instructions, shapes, layouts.

The format is XLA's own text of HLO. A layout, as in ``f32[128,100]{0,1:T(8,128)}``, has the
dimensions before its colon, from the one that is contiguous in memory outwards; ``T(8,128)``, which
the TPU's compiler adds, says that the first two of these are laid out in tiles of 8 x 128.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Final

from fuse.backends.estimates import Held

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
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r"([\w\-]+)\(")
_NODE = re.compile(r'op_name="[^"]*?/n(\d+)\.')
CALLED: Final = re.compile(
    r"(?:calls|body|condition|to_apply|called_computations?)=\{?%?([\w.\-]+)"
)
"""The computations that an instruction names."""
_NAME = re.compile(r"%([\w.\-]+)")
_TARGET = re.compile(r'custom_call_target="([^"]+)"')
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
    def node(self) -> int | None:
        """The position in the chunk of the node that emitted it."""
        found = _NODE.search(self.line)
        return int(found[1]) if found else None

    def operands(self) -> tuple[str, ...]:
        """The names of what it reads, in order."""
        return tuple(_NAME.findall(self.line.partition(")")[0]))

    def called(self) -> list[str]:
        """The computations that it names."""
        return CALLED.findall(self.line)

    def target(self) -> str:
        """What a custom call calls; empty for other instructions."""
        found = _TARGET.search(self.line)
        return found[1] if found else ""


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


def sizes(shape: str) -> tuple[str, tuple[int, ...]]:
    """The dtype and dimensions of a shape's first array; no dtype where there is none."""
    found = _SHAPE.search(shape)
    if found is None:
        return "", ()
    return found[1], tuple(int(size) for size in found[2].split(",") if size)


def nodes(program: Program, one: Instruction) -> set[int]:
    """Positions in the chunk of all nodes that an instruction does a part of."""
    found = {one.node} if one.node is not None else set()
    for name in one.called():
        for inner in program.computations.get(name, ()):
            found |= nodes(program, inner)
    return found
