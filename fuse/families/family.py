"""Families: the traces of one form, whose sizes move, and how a new one of them is run.

The first two run at their sizes. From the third on a trace runs at the sizes of a bucket, where
that is proven to change nothing; the executables of a bucket serve all traces in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fuse.bounded import Bounded
from fuse.families.draft import Offset, Padded
from fuse.families.padded_array import PaddedArray
from fuse.families.parts import Axes, Refused, moving
from fuse.families.rewrite import padded
from fuse.families.rules import rule_of
from fuse.families.sizes import Moving, form_of
from fuse.trace.node import Trace

FROM = 3
"""Traces of a form with sizes of their own before its buckets are used."""
FEWEST, FROM_OF_FEW = 4, 8
"""Of fewer operations it takes more traces: where each of a model's weights is initialised, their
sizes are as many forms."""
MOST_FORMS = 1024
PADDED = ""
"""The name of plans at the sizes of buckets among those of the reasons why there are none."""


@dataclass(frozen=True, slots=True)
class Padding:
    """What the run of a padded trace does before and after.

    Attributes:
        leaves: of each leaf the axes of its array, ``None`` for one without padding.
        live: likewise of each live value.
        words: what follows the true trace's words.
        offsets: words that are other numbers here.
        trace: the true one.
    """

    leaves: tuple[Axes | None, ...]
    live: tuple[Axes | None, ...]
    words: bytes
    offsets: tuple[Offset, ...]
    trace: Trace

    @staticmethod
    def of(trace: Trace, found: Padded, live: tuple[int, ...]) -> Padding:
        """That of a trace that is padded as ``found``, whose values ``live`` exist afterwards."""
        return Padding(
            tuple(axes if moving(axes) else None for axes in found.leaves),
            tuple(found.values[value] if moving(found.values[value]) else None for value in live),
            found.words,
            found.offsets,
            trace,
        )

    def scalars(self, words: bytes) -> bytes:
        """The words of the padded trace for those of the true one."""
        if self.offsets:
            numbers = np.frombuffer(words, np.int64).copy()
            for slot, strides in self.offsets:
                offset = int(numbers[slot])
                numbers[slot] = sum(offset // true % size * step for true, size, step in strides)
            words = numbers.tobytes()
        return words + self.words

    def results(self, arrays: list[Any]) -> list[Any]:
        """The arrays of live values, as they are kept."""
        return [
            array if axes is None else PaddedArray.of(array, axes)
            for array, axes in zip(arrays, self.live, strict=True)
        ]


class Families:
    """The forms that have been planned. Used under the recorder's mutex.

    Attributes:
        counts: of plans at the sizes of buckets, and of those that could not be, by reason.
    """

    def __init__(self) -> None:
        self._forms: Bounded[int, Moving] = Bounded(MOST_FORMS)
        self._refused: Bounded[int, str] = Bounded(MOST_FORMS)
        self.counts: Counter[str] = Counter()

    def reset(self) -> None:
        """Set the counters to zero."""
        self.counts.clear()

    def padded(self, trace: Trace) -> Padded | str | None:
        """The trace at the sizes of buckets, or why it is to run at its own.

        ``None`` where no sizes are known to move.
        """
        form = form_of(trace)
        known = self._forms.get(form)
        if known is None:
            self._forms[form] = Moving(trace)
            return None
        known.add(trace)
        least = FROM if len(trace.nodes) >= FEWEST else FROM_OF_FEW
        if known.traces < least or _in_a_group():
            return None
        try:
            why = self._refused.get(form)
            found = padded(trace, known.marks(trace), rule_of) if why is None else why
        except Refused as refused:
            found = str(refused)
        self.counts[found if isinstance(found, str) else PADDED] += 1
        return found

    def refuse(self, trace: Trace, why: str) -> None:
        """Run all traces of this form at their own sizes: a bucket's was not compiled."""
        self._refused[form_of(trace)] = why
        self.counts[PADDED] -= 1  # it was counted as a plan when it was made
        self.counts[why] += 1

    def stats(self) -> dict[str, Any]:
        """``fuse.stats()["families"]``."""
        reasons = {name: count for name, count in self.counts.items() if name != PADDED}
        return {"plans": self.counts[PADDED], "one_size_each": reasons}


def _in_a_group() -> bool:
    """Whether ranks run their traces as one program, whose arrays are parts of others."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
