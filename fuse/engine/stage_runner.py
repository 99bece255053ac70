"""Runs the stages of a plan, in order, on one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuse.backends.base import Backend
from fuse.engine.compiler import Compiler
from fuse.engine.pool import finish
from fuse.engine.runnable import Runnable, Stage, Started
from fuse.engine.timeline import Timeline


@dataclass(frozen=True, slots=True)
class StageRunner:
    """What stages run with.

    Attributes:
        compiler: where executables come from that are still being made.
        observer: who is told, if anybody.
        device: the index of the device where the arrays are.
    """

    backend: Backend
    compiler: Compiler
    observer: Timeline | None
    device: int

    def stages(
        self,
        runnable: Runnable,
        leaves: list[Any],
        scalars: bytes,
        started: Started | None,
        stop: int,
    ) -> list[Any]:
        """The slots after the stages up to ``stop``, without those that have been started."""
        slots = leaves + [None] * (len(runnable.leaves) - len(leaves))
        first = 0
        if started is not None:
            first = started.stages
            slots += started.made
        for number, stage in enumerate(runnable.stages[first:stop], first):
            words, inputs = stage.words(scalars), stage.take(slots)
            if self.observer is None:
                results = self._stage(stage, words, inputs)
            else:
                if stage.pending is not None and self.compiler.waits:
                    finish(stage.pending)
                with self.observer.span("executing", stage.found.label, number):
                    results = self._stage(stage, words, inputs)
                    self.backend.wait(results)
            if stage.read:
                self.backend.ask([results[place] for place in stage.read])
            slots += results
            for slot in stage.drop:
                slots[slot] = None  # the array dies here unless somebody else holds it
        return slots

    def _stage(self, stage: Stage, scalars: bytes, inputs: Sequence[Any]) -> list[Any]:
        if stage.pending is not None and stage.chunk is not None:
            found = self.compiler.ready(stage.found.digest, stage.pending)
            if found is None:
                return self.compiler.run_uncompiled(
                    self.backend, stage.chunk, scalars, inputs, self.device
                )
            stage.executable, stage.found = found.executable, found
            stage.chunk = stage.pending = None
        executable = stage.executable
        if self.device:
            executable = self.backend.on(executable, self.device)
        return self.backend.execute(executable, scalars, inputs)
