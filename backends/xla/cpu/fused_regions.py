"""Fused regions: operations on independent samples that the CPU's kernels do as one.

A linear layer, a norm, attention and what lies between them treat the samples of a batch, or the
rows of a matrix, independently of each other. XLA's CPU platform runs one operation after the
other, each on all threads, and after each of them all threads wait for the last. In a region the
batch is split over the threads once, and each thread goes through all operations with its
samples; what nobody else reads is never written out for all of them
(``cpu/csrc/fused_regions.cpp``).

Measured on two x86 cores, turn by turn, times as fast as the same kernels one by one, means:
inference of an encoder of four layers 1.11, of a GPT of 4 M parameters 1.06 (medians 1.12, 1.10);
their training 1.03 to 1.06, where only the forward pass is one. Its backward pass as one, with
the gradients of norms, attention and biases: 0.88 to 0.93, because the products that carry the
gradient back are faster by XLA, and the gradients of weights find their operands in no cache.
"""

from __future__ import annotations

import math
import os
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from fuse.backends.base import Chunk
from fuse.backends.xla.calls import Call
from fuse.backends.xla.cpu import kernels
from fuse.backends.xla.cpu.region_ops import Kernel, Kind, Part, RegionOp, region_op
from fuse.trace.node import Node, layouts_of
from fuse.trace.spec import Layout

LEAST_WORK: Final = 1 << 23
"""Multiplications that make a region worth its call: some 100 us of a core."""
LEAST_OPS: Final = 3
"""Products, norms and attentions that do."""
_LARGE: Final = (Kernel.PRODUCT, Kernel.BIASED_PRODUCT, Kernel.LAYER_NORM, Kernel.ATTENTION)


@dataclass(frozen=True, slots=True)
class FusedRegion(Call):
    """Nodes that are done as one: their places in the chunk, and the samples they are done for."""

    nodes: tuple[int, ...]
    ops: tuple[RegionOp, ...]
    samples: int

    def emit(self, chunk: Chunk, values: dict[int, tuple[jax.Array, Layout]]) -> None:
        """Call the region's kernels: extend ``values`` by what others read of what they make."""
        layouts = layouts_of(chunk.inputs, chunk.nodes)
        inside = set(self.nodes)
        others = (node for place, node in enumerate(chunk.nodes) if place not in inside)
        needed = {*chunk.outputs, *(operand.value for node in others for operand in node.operands)}
        written = [part.value for op in self.ops for part in op.results]
        outputs = [value for value in written if value in needed]
        code = _Code(self, layouts, outputs)
        made = kernels.call(
            "fused_region",
            [jax.ShapeDtypeStruct(layouts[value].shape, jnp.float32) for value in outputs],
            *(values[value][0] for value in code.inputs),
            ops=code.words,
            scratch=code.scratch,
            numbers=np.array(code.numbers, np.float64),
            samples=self.samples,
            # Where most is kept for a backward pass, the program is recording that one meanwhile:
            # more shares than threads even out what it takes of a core. 1.03 of the speed; 0.9
            # elsewhere.
            each=2 if 2 * len(outputs) > len(written) else 1,
        )
        values |= {value: (made[at], layouts[value]) for at, value in enumerate(outputs)}
        for place in self.nodes:
            for value in chunk.nodes[place].results():
                # Attention's random state, which only CUDA's kernels have: zero elsewhere.
                if value in needed and value not in values:
                    layout = layouts[value]
                    values[value] = jnp.zeros(layout.shape, layout.dtype), layout


def find_regions(chunk: Chunk, apart: Container[int] = ()) -> list[FusedRegion]:
    """The fused regions in ``chunk``, none of which has nodes at the places ``apart``.

    A region ends before the first node that could be in it but reads what others make of the
    region's values, or all samples of one of them. So nothing it reads depends on it.
    """
    found: list[FusedRegion] = []
    current = _Growing()
    for place, node in enumerate(chunk.nodes):
        op = None if place in apart else region_op(node)
        if op is not None:
            if not current.takes(op, node):
                found += current.ended()
                current = _Growing()
            current.add(place, op, node)
        else:
            current.pass_by(node)
    return found + current.ended()


@dataclass(slots=True)
class _Growing:
    """A region that may go on.

    ``made`` are values that it makes, ``beyond`` those that others make of them.
    """

    nodes: list[int] = field(default_factory=list)
    ops: list[RegionOp] = field(default_factory=list)
    samples: int = 0
    made: set[int] = field(default_factory=set)
    beyond: set[int] = field(default_factory=set)

    def takes(self, op: RegionOp, node: Node) -> bool:
        return (
            not any(operand.value in self.beyond for operand in node.operands)
            and op.whole().isdisjoint(self.made)
            and _balanced(math.gcd(self.samples, *op.sizes()))
        )

    def add(self, place: int, op: RegionOp, node: Node) -> None:
        self.nodes.append(place)
        self.ops.append(op)
        self.samples = math.gcd(self.samples, *op.sizes())
        self.made.update(node.results())

    def pass_by(self, node: Node) -> None:
        if any(one.value in self.made or one.value in self.beyond for one in node.operands):
            self.beyond.update(node.results())

    def ended(self) -> list[FusedRegion]:
        work = sum(op.work for op in self.ops)
        large = sum(op.kernel in _LARGE for op in self.ops)
        if work < LEAST_WORK or large < LEAST_OPS or not _balanced(self.samples):
            return []
        return [FusedRegion(tuple(self.nodes), tuple(self.ops), self.samples)]


def _balanced(samples: int) -> bool:
    """Whether all cores get as much to do, or nearly."""
    cores = os.cpu_count() or 1
    return samples % cores == 0 or samples >= 8 * cores


class _Code:
    """A region as the native core reads it.

    Attributes:
        inputs: values that it takes.
        words: for each operation the kernel, where its numbers begin, its operands and its results.
        numbers: those of all operations.
        scratch: numbers of one sample in each piece of memory for what nobody else reads.
    """

    def __init__(self, region: FusedRegion, layouts: dict[int, Layout], outputs: list[int]) -> None:
        parts = [part for op in region.ops for part in op.operands if part is not None]
        made = {part.value for op in region.ops for part in op.results}
        self.inputs = list(dict.fromkeys(part.value for part in parts if part.value not in made))
        self.words: list[int] = []
        self.numbers: list[float] = []
        self.scratch: list[int] = []
        self._layouts, self._samples = layouts, region.samples
        self._places = {value: at for at, value in enumerate([*self.inputs, *outputs])}
        self._held = len(self._places)
        self._free: dict[int, list[int]] = {}
        last = {
            part.value: at
            for at, op in enumerate(region.ops)
            for part in (*op.operands, *op.results)
            if part is not None
        }
        for at, op in enumerate(region.ops):
            self._write(op, [value for value, place in last.items() if place == at])

    def _write(self, op: RegionOp, done: list[int]) -> None:
        """One operation; ``done`` are the values that no later one reads."""
        self.words += [int(op.kernel), len(self.numbers)]
        self.numbers += op.numbers
        for parts in (op.operands, op.results):
            self.words.append(len(parts))
            for part in parts:
                self.words += [int(Kind.NONE)] if part is None else self._part(part)
        for value in done:
            place = self._places[value]
            if place >= self._held:
                self._free[self.scratch[place - self._held]].append(place)

    def _part(self, part: Part) -> list[int]:
        view, place = part.view, self._place(part.value)
        head = [int(part.kind), place, view.offset]
        return [*head, len(view.shape), *view.shape, len(view.strides), *view.strides]

    def _place(self, value: int) -> int:
        """Where the core finds a value; if nobody else reads it, where one of its size lay."""
        if value not in self._places:
            count = self._layouts[value].numel // self._samples
            free = self._free.setdefault(count, [])
            if not free:
                free.append(self._held + len(self.scratch))
                self.scratch.append(count)
            self._places[value] = free.pop()
        return self._places[value]
