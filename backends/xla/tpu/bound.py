"""What an instruction takes at least on a TPU, where its compiler has given no cycles.

Operations at the published peak or bytes at the published bandwidth, whichever takes longer; what
lies in the vector memory moves for nothing. Of three compiled steps of Llama-like layers the
compiler's own cycles were 1.41 to 1.52 times this, of one of two small layers, which fit into the
vector memory, 8 times: it ranks ways to run a step, and forecasts none.
"""

from __future__ import annotations

from dataclasses import replace

from fuse.backends.estimates import KERNEL, Cost, Machine
from fuse.backends.xla.gpu import costs
from fuse.backends.xla.targets.account import Read
from fuse.backends.xla.targets.hlo import Instruction, Program
from fuse.backends.xla.tpu.work import stated


def reader(machine: Machine) -> Read:
    """The least cycles of one execution at the machine's peaks; of a kernel by its stated work."""

    def cost(program: Program, computation: str, one: Instruction) -> Cost | None:
        work = stated(one.line)
        if work is not None:
            nodes = () if one.node is None else (one.node,)
            return Cost(one.name, KERNEL, work.cycles(machine), one.node, nodes, flops=work.flops)
        found = costs.cost(program, computation, one)
        if found is None:
            return None
        seconds = max(found.flops / machine.flops, found.nbytes / machine.bandwidth)
        return replace(found, cycles=round(seconds * machine.clock))

    return cost
