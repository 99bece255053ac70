"""Collectives of a fake run: one process stands for a rank of a group of any size.

Nothing moves. What a call would be on a TPU is told to whoever captures the step, and its results
are arrays of the right shapes.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from fuse.distributed import runtime

_SAME: Final = ("all_gather", "broadcast", "gather")
"""Collectives whose results are elements of the ranks' own."""


class FakePrograms:
    """The collectives of one group whose other ranks are there only in name."""

    def __init__(self, processes: Sequence[int]) -> None:
        """``processes`` are the members' numbers in the default group, in the order of ranks."""
        self._processes = tuple(processes)
        self._forms = importlib.import_module("fuse.backends.xla.ranks.programs")
        self._arrays = importlib.import_module("fuse.backends.fake.backend")

    def run(self, call: runtime.Call) -> list[Any]:
        """An array for each of the shapes of this rank's targets."""
        ranks = len(self._processes)
        counts = [call.most * ranks] if call.kind == "all_to_all" else call.counts
        form = self._forms.Form(
            kind=call.kind,
            # Whose factor is the rank's own, and one product more.
            reduction="sum" if call.reduction == "premul_sum" else call.reduction,
            root=call.root,
            ranks=ranks,
            parts=ranks if call.kind == "gather" else call.parts,
            sources=tuple(counts),
            dtype=call.dtype,
            members=self._processes,
        )
        found = [self._made(call, at) for at in range(len(call.shapes))]
        if runtime.watcher is not None:
            runtime.watcher(form, call.sources, found)
        return found

    def _made(self, call: runtime.Call, at: int) -> Any:
        """A target's array; of what came from the host the value too, as if ranks had the same."""
        shape, sources = tuple(call.shapes[at]), call.sources
        from_ = at // call.parts if call.kind == "all_gather" else at
        own = _value(sources[from_ % len(sources)], call.dtype) if sources else None
        value = None if own is None or call.kind not in _SAME else np.resize(own, shape)
        return self._arrays.FakeArray(shape, call.dtype, value)


def _value(source: Any, dtype: str) -> np.ndarray | None:
    """What is in a source, where that is known: it lies on the host still, or came from there."""
    if isinstance(source, torch.Tensor):
        flat: np.ndarray = runtime.flat(source, dtype)
        return flat
    kept: np.ndarray | None = source.value
    return kept
