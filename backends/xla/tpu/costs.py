"""What a TPU's compiler says of an instruction: ``estimated_cycles`` in its ``backend_config``.

A kernel has none: its cycles are computed from the work that it states, see ``work``.
"""

from __future__ import annotations

import re

from fuse.backends.estimates import KERNEL, Cost, Machine
from fuse.backends.xla.targets import hlo
from fuse.backends.xla.targets.account import Read
from fuse.backends.xla.targets.hlo import Instruction, Program
from fuse.backends.xla.tpu.work import stated

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


def reader(machine: Machine) -> Read:
    """The cost of one execution: the compiler's estimate, or what stated work takes there."""

    def cost(program: Program, computation: str, one: Instruction) -> Cost | None:
        found = _CYCLES.search(one.line)
        if found is not None:
            nodes = tuple(sorted(hlo.nodes(program, one)))
            return Cost(one.name, one.opcode, int(found[1]), one.node, nodes)
        work = stated(one.line)
        if work is None:
            return None
        nodes = () if one.node is None else (one.node,)
        return Cost(one.name, KERNEL, work.cycles(machine), one.node, nodes, flops=work.flops)

    return cost
