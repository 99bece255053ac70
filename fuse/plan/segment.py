"""Where a long trace is cut into chunks, and why.

A trace of up to ``WHOLE`` operations is one chunk: its work is dominated by the calls
themselves. A longer one is cut at the borders of its repeated blocks, so that
equal blocks share one executable, and what lies between them is cut, where it is longer
than ``LONGEST``, at the point near the bound where the fewest bytes are alive. docs/planner.md has the measurements behind the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse.plan.repeats import find_repeats

WHOLE = 200
"""Operations up to which a trace is one executable. A training step of a small transformer
(320 operations) ran 1.2 to 2.6 times faster cut at its layers than whole on XLA's CPU platform,
and compiled sooner; below this size the cost of more calls outweighs that."""
LONGEST = 600
"""Operations a chunk outside a repeat holds at most."""
SMALLEST = 12
"""Operations a repeated block holds at least: a call costs as much as several small ones."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Operations ``start`` to ``stop`` of a trace; ``reason`` says what made it a chunk."""

    start: int
    stop: int
    reason: str


def segments(tokens: Sequence[int], alive: Sequence[int], whole: int = WHOLE) -> list[Segment]:
    """Cut a trace of ``len(tokens)`` operations; ``alive`` are the bytes alive after each."""
    total = len(tokens)
    if total <= whole:
        return [Segment(0, total, f"the whole trace: {total} operations are within {whole}")]
    result: list[Segment] = []
    position = 0
    for repeat in find_repeats(tokens, SMALLEST):
        result += _between(position, repeat.start, alive)
        result += [
            Segment(
                repeat.start + index * repeat.period,
                repeat.start + (index + 1) * repeat.period,
                f"block {index + 1} of {repeat.count}, {repeat.period} operations each",
            )
            for index in range(repeat.count)
        ]
        position = repeat.stop
    return result + _between(position, total, alive)


def _between(start: int, stop: int, alive: Sequence[int]) -> list[Segment]:
    result = []
    while stop - start > LONGEST:
        # Low liveness within the last quarter of what is allowed: few bytes cross the border.
        window = range(start + LONGEST * 3 // 4, start + LONGEST)
        border = min(window, key=lambda position: (alive[position], position)) + 1
        reason = f"{alive[border - 1]} bytes alive at its end, the least near {LONGEST} operations"
        result.append(Segment(start, border, reason))
        start = border
    if stop > start:
        result.append(Segment(start, stop, "between repeats"))
    return result
