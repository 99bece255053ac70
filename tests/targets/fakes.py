"""A target whose compiler is a few lines: what the engine, the report and the advice ask of one."""

from __future__ import annotations

import time
from collections.abc import Callable

from fuse.backends.base import Chunk, Target
from fuse.backends.estimates import AS_IT_IS, KERNEL, Cost, Estimate, Held, Machine, Variant
from fuse.trace.borders import Borders
from fuse.trace.node import Node

MACHINE = Machine(
    "fake", 100e12, 1e12, 10**9, 1e9, "tests", 128, 8, 128, emulates=("float64", "int64")
)
PASSES = {"highest": 6, "high": 3, "medium": 1}


def cycles_of(node: Node, variant: Variant) -> int:
    """100 an operation; a product of float32 six times as much, of 64 bits ten times."""
    dtypes = node.dtypes()
    cycles = 1000 if dtypes & {"float64", "int64"} else 100
    if node.target in ("mm", "addmm") and "float32" in dtypes:
        cycles *= PASSES[variant.precision or "highest"]
    if "scaled_dot_product" in node.target:
        cycles = 10_000 if node.operands[0].view.shape[-1] < MACHINE.lanes else 5_000
    return cycles


class FakeTarget(Target):
    """Final. ``refused`` are operators that the compiler refuses, ``dies_of`` that end it,
    ``kernels`` whose cycles are those that a kernel states."""

    def __init__(
        self,
        refused: tuple[str, ...] = (),
        rejected: tuple[str, ...] = (),
        dies_of: tuple[str, ...] = (),
        kernels: tuple[str, ...] = (),
        cycles: Callable[[Node, Variant], int] = cycles_of,
        seconds: float = 0.0,
        borders: Borders = Borders(),  # noqa: B008  (frozen)
        machine: Machine = MACHINE,
        kind: str = "TPU",
    ) -> None:
        self.name, self.machine, self.kind = "fake", machine, kind
        self.refused, self.rejected, self.dies_of = refused, rejected, dies_of
        self.kernels = kernels
        self.cycles, self.seconds, self._borders = cycles, seconds, borders
        self.compiled: list[Chunk] = []
        self.closed = 0

    def describe(self) -> dict[str, str]:
        return {
            "backend": "xla",
            "target": "fake",
            "compiler": "a fake 0",
            "float32 products": "highest",
            "of": str(id(self)),
        }

    def fingerprint(self) -> dict[str, str]:
        return {"backend": "xla", "platform": "fake"}

    def borders(self) -> Borders:
        return self._borders

    def reject(self, node: Node) -> str | None:
        return "a fake has none" if node.op in self.rejected else None

    def opcode(self, node: Node) -> str:
        return KERNEL if node.op in self.kernels else "fusion"

    def compile(self, chunk: Chunk, variant: Variant = AS_IT_IS) -> tuple[Estimate, bytes]:
        self.compiled.append(chunk)
        time.sleep(self.seconds)
        for node in chunk.nodes:
            if node.op in self.refused:
                return Estimate(error=f"no {node.op}\nmore", kind="refused"), b""
            if node.op in self.dies_of:
                return Estimate(error=f"died of {node.op}", kind="aborted"), b""
        costs = tuple(self.cost(at, node, variant) for at, node in enumerate(chunk.nodes))
        held = tuple(
            Held(str(x.layout), x.layout.nbytes, 2 * x.layout.nbytes) for x in chunk.inputs
        )
        found = Estimate(
            cycles=sum(cost.cycles for cost in costs),
            costs=costs,
            unestimated={"sort": 2},
            flops=1e6,
            arguments=held,
            temporary_bytes=64,
            seconds=0.5,
        )
        return found, b"an executable"

    def cost(self, at: int, node: Node, variant: Variant) -> Cost:
        """An operation's cycles, or where the machine counts none, as many bytes at its peak."""
        amount = self.cycles(node, variant)
        if self.machine.counts_cycles:
            return Cost(f"one.{at}", self.opcode(node), amount, at, (at,))
        return Cost(f"fusion.{at}", "fusion", 0, at, (at,), unit="vector", nbytes=amount)

    def close(self) -> None:
        self.closed += 1
