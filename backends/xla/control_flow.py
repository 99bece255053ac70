"""Loops and branches as XLA's own: ``lax.scan``, ``lax.while_loop`` and ``lax.cond``."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from typing import final

import jax
import numpy as np
from jax import lax

from fuse.backends.control_flow import ControlFlow
from fuse.backends.functions import Program
from fuse.backends.xla.emit import emit_steps
from fuse.backends.xla.platform import Platform
from fuse.trace.decompose import Decomposition

Part = Callable[..., tuple[jax.Array, ...]]


@final
class FlowProgram(Program):
    """A loop or branch as what a node calls; its code is a digest of all that it is made of."""

    storable = True

    def __init__(self, flow: ControlFlow) -> None:
        self.flow = flow
        self.code = hashlib.sha256(repr(flow).encode()).hexdigest()[:32]

    def emit(self, platform: Platform, arrays: Sequence[jax.Array]) -> list[jax.Array]:  # type: ignore[override]  # XLA's programs run on its platforms
        """The results, on tracers."""
        return _emit(self.flow, platform, arrays)

    def shipped(self, platform: str) -> Program:
        """Itself."""
        return self

    def on_host(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results, by NumPy's rules."""
        # Loaded late: a program of XLA's needs none of NumPy's rules.
        numpy = importlib.import_module("fuse.backends.numpy.control_flow")
        found: list[np.ndarray] = numpy.run(self.flow, arrays)
        return found


def _emit(flow: ControlFlow, platform: Platform, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    parts = [_part(one, platform) for one in flow.parts]
    if flow.kind == "cond":
        choice, *operands = arrays
        return list(lax.cond(choice.reshape(()), *parts, *operands))
    carried, stacked, rest = flow.split(arrays)
    if flow.kind == "while_loop":
        condition, body = parts
        return list(
            lax.while_loop(
                lambda values: condition(*values, *rest)[0].reshape(()),
                lambda values: body(*values, *rest),
                tuple(carried),
            )
        )

    def step(
        values: tuple[jax.Array, ...], slices: tuple[jax.Array, ...]
    ) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        made = parts[0](*values, *slices, *rest)
        return made[: len(values)], made[len(values) :]

    last, results = lax.scan(step, tuple(carried), tuple(stacked))
    return [*last, *results]


def _part(found: Decomposition, platform: Platform) -> Part:
    return lambda *arrays: emit_steps(found, arrays, platform)
