"""Loops and branches, in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fuse.backends.control_flow import ControlFlow
from fuse.backends.decomposed import run_steps
from fuse.backends.numpy.interpret import call_rule, run_step
from fuse.backends.numpy.rules.context import convert
from fuse.trace.decompose import Decomposition

Part = Callable[..., tuple[np.ndarray, ...]]


def run(flow: ControlFlow, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results."""
    parts = [_part(part) for part in flow.parts]
    if flow.kind == "cond":
        choice, *operands = arrays
        return list(parts[not choice.item()](*operands))
    carried, stacked, rest = flow.split(arrays)
    if flow.kind == "while_loop":
        condition, body = parts
        while condition(*carried, *rest)[0].item():
            carried = list(body(*carried, *rest))
        return carried
    rows: list[Sequence[np.ndarray]] = []
    for slices in zip(*stacked, strict=True):
        made = parts[0](*carried, *slices, *rest)
        carried, results = list(made[: flow.carried]), made[flow.carried :]
        rows.append(results)
    return [*carried, *map(np.stack, zip(*rows, strict=True))]


def _part(found: Decomposition) -> Part:
    return lambda *arrays: run_steps(found, arrays, partial(run_step, call=call_rule), convert)
