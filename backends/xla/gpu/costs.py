"""What an instruction of a GPU's program reads, writes and computes.

The compiler gives no cycles. An instruction of the entered computation is a kernel, or a call of a
library: it reads its operands from the GPU's memory and writes its results there. What a slice
leaves out, and what an update in place keeps, it does not touch. Operations are those of products,
convolutions and attention; where there are none, one for each number that an elementwise
instruction or a reduction takes.

Sorts, transforms and factorisations get no figure: they pass over their arrays several times, and
how often depends on what the library does. Nor does what moves numbers between GPUs.

``xla_gpu_collect_cost_model_stats``, an option of the compiler, adds a model of its own. That has
products of float64, float32 and bfloat16 take the same time, and has none for calls of libraries:
it is not used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from fuse.backends.estimates import Cost
from fuse.backends.xla.gpu.products import Work, product
from fuse.backends.xla.targets import hlo
from fuse.backends.xla.targets.hlo import Instruction, Program

MOVES: Final = hlo.FREE | frozenset(
    [
        "bitcast-convert",
        "broadcast",
        "concatenate",
        "copy",
        "dynamic-slice",
        "dynamic-update-slice",
        "fusion",
        "gather",
        "iota",
        "pad",
        "reshape",
        "reverse",
        "slice",
        "transpose",
    ]
)
"""What moves numbers and computes none."""
SEVERAL_PASSES: Final = frozenset(["sort", "fft", "cholesky", "triangular-solve", "topk"])
CONTROL: Final = frozenset(
    ["while", "conditional", "call", "async-start", "async-update", "async-done"]
)
BETWEEN: Final = ("all-", "collective-", "reduce-scatter", "ragged-all", "send", "recv")
"""How the names of instructions begin that move numbers between GPUs, by another path."""
SLICES: Final = frozenset(["slice", "dynamic-slice", "gather"])
_WITHOUT: Final = hlo.FREE | CONTROL | SEVERAL_PASSES
UPDATES: Final = {"dynamic-update-slice": 1, "scatter": 2}
"""Instructions that write into their first operand, and which operand is what they write."""


def cost(program: Program, computation: str, one: Instruction) -> Cost | None:
    """Bytes and operations of one execution; ``None`` for what has no figure, or does nothing."""
    if one.opcode in _WITHOUT or one.opcode.startswith(BETWEEN):
        return None
    shapes = {other.name: other.shape for other in program.computations[computation]}
    if one.opcode == "custom-call":
        work = product(one, shapes)
        return None if work is None else _cost(program, one, work, _of_call(one, shapes))
    inside = _fused(program, one)
    if any(other.opcode in SEVERAL_PASSES for other in inside):
        return None
    return _cost(program, one, _work(program, one, shapes), _bytes(one, inside, shapes))


def _cost(program: Program, one: Instruction, work: Work, nbytes: int) -> Cost:
    nodes = tuple(sorted(hlo.nodes(program, one)))
    return Cost(one.name, one.opcode, 0, one.node, nodes, work.flops, work.unit, nbytes)


def _fused(program: Program, one: Instruction) -> tuple[Instruction, ...]:
    """The instructions of a fusion; of another one, none."""
    called = one.called() if one.opcode == "fusion" else []
    return program.computations.get(called[0], ()) if called else ()


def _of_call(one: Instruction, shapes: Mapping[str, str]) -> int:
    """A library's call: its operands, and its results without the workspace at the end."""
    results = hlo.arrays(one.shape)
    if len(results) > 1 and re.match(r"[su]8\[\d+\]", results[-1].text):
        results = results[:-1]
    read = sum(_size(shapes.get(name, "")) for name in one.operands())
    return read + sum(held.nbytes for held in results)


def _size(shape: str) -> int:
    """Bytes in the device's own memory, which is space 0: a TPU has a vector memory as well."""
    return sum(held.nbytes for held in hlo.arrays(shape) if "S(" not in held.text)


def _bytes(one: Instruction, inside: tuple[Instruction, ...], shapes: Mapping[str, str]) -> int:
    """What a kernel reads and writes."""
    if not inside:
        return _alone(one, shapes)
    inner = {other.name: other.shape for other in inside}
    read = sum(_read(other, inside, inner) for other in inside if other.opcode == "parameter")
    return read + sum(_written(other, inner) for other in _results(inside))


def _alone(one: Instruction, shapes: Mapping[str, str]) -> int:
    if one.opcode in SLICES:
        return 2 * _size(one.shape)
    if one.opcode in UPDATES:
        return 2 * _written(one, shapes)
    return _size(one.shape) + sum(_size(shapes.get(name, "")) for name in one.operands())


def _read(
    parameter: Instruction, inside: tuple[Instruction, ...], shapes: Mapping[str, str]
) -> int:
    """Of a fusion's operand what its users take: slices of it, or all."""
    users = [other for other in inside if parameter.name in other.operands()]
    whole, parts = _size(parameter.shape), 0
    for user in users:
        first = user.operands()[0] == parameter.name and user.operands().count(parameter.name) == 1
        if first and user.opcode in SLICES:
            parts += _size(user.shape)
        elif first and user.opcode in UPDATES:
            parts += 0 if user.opcode == "dynamic-update-slice" else _written(user, shapes)
        else:
            return whole
    return min(parts, whole)


def _results(inside: tuple[Instruction, ...]) -> list[Instruction]:
    """What a fusion returns, a tuple's parts in order."""
    by_name = {other.name: other for other in inside}
    root = next(other for other in inside if other.root)
    if root.opcode != "tuple":
        return [root]
    return [by_name[name] for name in root.operands() if name in by_name]


def _written(one: Instruction, shapes: Mapping[str, str]) -> int:
    """Of a result what is written: of an update in place the new part."""
    at = UPDATES.get(one.opcode)
    operands = one.operands()
    if at is None or len(operands) <= at:
        return _size(one.shape)
    return _size(shapes.get(operands[at], ""))


def _work(program: Program, one: Instruction, shapes: Mapping[str, str]) -> Work:
    """The operations of a kernel: those of its products, or else of everything in it."""
    inside = _fused(program, one) or (one,)
    inner = {other.name: other.shape for other in inside} if inside[0] is not one else shapes
    products = [found for found in (product(other, inner) for other in inside) if found]
    if products:
        return Work(sum(found.flops for found in products), products[0].unit)
    wide = any(_dtype(other) in ("f64", "c128") for other in inside)
    flops = sum(_elementwise(program, other, inner) for other in inside)
    return Work(flops, "vector64" if wide else "vector")


def _dtype(one: Instruction) -> str:
    return hlo.sizes(one.shape)[0]


def _elementwise(program: Program, one: Instruction, shapes: Mapping[str, str]) -> float:
    if one.opcode in MOVES:
        nested = _fused(program, one)
        names = {other.name: other.shape for other in nested}
        return sum(_elementwise(program, other, names) for other in nested)
    of = shapes.get(one.operands()[0], "") if one.opcode.startswith("reduce") else one.shape
    return float(math.prod(hlo.sizes(of)[1]))
