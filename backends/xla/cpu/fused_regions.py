"""Fused regions: chains of operations on independent samples, done as one by the CPU's kernels.

A linear layer, a norm, attention and what lies between them treat the samples of a batch, or the
rows of a matrix, independently of each other. XLA's CPU platform runs one operation after the
other, each on all threads, and after each of them all threads wait for the last. In a chain the
batch is split over the threads once, and each thread goes through all operations with its
samples; what nobody else reads is never written out for all of them (``cpu/csrc/chains.cpp``).

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
from fuse.backends.xla.cpu.links import Kernel, Kind, Link, Part, link_of
from fuse.trace.node import Node, layouts_of
from fuse.trace.spec import Layout

LEAST_WORK: Final = 1 << 23
"""Multiplications that make a chain worth its call: some 100 us of a core."""
LEAST_LINKS: Final = 3
"""Products, norms and attentions that do."""
_LARGE: Final = (Kernel.PRODUCT, Kernel.BIASED_PRODUCT, Kernel.LAYER_NORM, Kernel.ATTENTION)


@dataclass(frozen=True, slots=True)
class Chain(Call):
    """Nodes that are done as one: their places in the chunk, and the samples they are done for."""

    nodes: tuple[int, ...]
    links: tuple[Link, ...]
    samples: int

    def emit(self, chunk: Chunk, values: dict[int, tuple[jax.Array, Layout]]) -> None:
        """Call the chain's kernels: extend ``values`` by what others read of what they make."""
        layouts = layouts_of(chunk.inputs, chunk.nodes)
        inside = set(self.nodes)
        others = (node for place, node in enumerate(chunk.nodes) if place not in inside)
        needed = {*chunk.outputs, *(operand.value for node in others for operand in node.operands)}
        written = [part.value for link in self.links for part in link.results]
        outputs = [value for value in written if value in needed]
        code = _Code(self, layouts, outputs)
        made = kernels.call(
            "chain",
            [jax.ShapeDtypeStruct(layouts[value].shape, jnp.float32) for value in outputs],
            *(values[value][0] for value in code.inputs),
            steps=code.words,
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


def chains(chunk: Chunk, apart: Container[int] = ()) -> list[Chain]:
    """The chains in ``chunk``, none of which has nodes at the places ``apart``.

    A chain ends before the first node that could be a link but reads what others make of the
    chain's values, or all samples of one of them. So nothing it reads depends on it.
    """
    found: list[Chain] = []
    current = _Growing()
    for place, node in enumerate(chunk.nodes):
        link = None if place in apart else link_of(node)
        if link is not None:
            if not current.takes(link, node):
                found += current.ended()
                current = _Growing()
            current.add(place, link, node)
        else:
            current.pass_by(node)
    return found + current.ended()


@dataclass(slots=True)
class _Growing:
    """A chain that may go on.

    ``made`` are values that it makes, ``beyond`` those that others make of them.
    """

    nodes: list[int] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    samples: int = 0
    made: set[int] = field(default_factory=set)
    beyond: set[int] = field(default_factory=set)

    def takes(self, link: Link, node: Node) -> bool:
        return (
            not any(operand.value in self.beyond for operand in node.operands)
            and link.whole().isdisjoint(self.made)
            and _balanced(math.gcd(self.samples, *link.sizes()))
        )

    def add(self, place: int, link: Link, node: Node) -> None:
        self.nodes.append(place)
        self.links.append(link)
        self.samples = math.gcd(self.samples, *link.sizes())
        self.made.update(node.results())

    def pass_by(self, node: Node) -> None:
        if any(one.value in self.made or one.value in self.beyond for one in node.operands):
            self.beyond.update(node.results())

    def ended(self) -> list[Chain]:
        work = sum(link.work for link in self.links)
        large = sum(link.kernel in _LARGE for link in self.links)
        if work < LEAST_WORK or large < LEAST_LINKS or not _balanced(self.samples):
            return []
        return [Chain(tuple(self.nodes), tuple(self.links), self.samples)]


def _balanced(samples: int) -> bool:
    """Whether all cores get as much to do, or nearly."""
    cores = os.cpu_count() or 1
    return samples % cores == 0 or samples >= 8 * cores


class _Code:
    """A chain as the native core reads it.

    Attributes:
        inputs: values that it takes.
        words: for each link the kernel, where its numbers begin, its operands and its results.
        numbers: those of all links.
        scratch: numbers of one sample in each piece of memory for what nobody else reads.
    """

    def __init__(self, chain: Chain, layouts: dict[int, Layout], outputs: list[int]) -> None:
        parts = [part for link in chain.links for part in link.operands if part is not None]
        made = {part.value for link in chain.links for part in link.results}
        self.inputs = list(dict.fromkeys(part.value for part in parts if part.value not in made))
        self.words: list[int] = []
        self.numbers: list[float] = []
        self.scratch: list[int] = []
        self._layouts, self._samples = layouts, chain.samples
        self._places = {value: at for at, value in enumerate([*self.inputs, *outputs])}
        self._held = len(self._places)
        self._free: dict[int, list[int]] = {}
        last = {
            part.value: at
            for at, link in enumerate(chain.links)
            for part in (*link.operands, *link.results)
            if part is not None
        }
        for at, link in enumerate(chain.links):
            self._write(link, [value for value, place in last.items() if place == at])

    def _write(self, link: Link, done: list[int]) -> None:
        """One link; ``done`` are the values that no later one reads."""
        self.words += [int(link.kernel), len(self.numbers)]
        self.numbers += link.numbers
        for parts in (link.operands, link.results):
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
