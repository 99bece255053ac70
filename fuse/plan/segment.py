"""Where a trace is cut into chunks, and why.

Short traces stay whole: their work is dominated by the calls themselves, and so do a forward
pass and a backward pass that are short. A longer one is cut

* where a long stretch without dense anchors begins and ends (an optimizer's update), or where
  its repeats begin if that is soon after;
* at the borders of repeated blocks, so that equal blocks share one executable;
* where a number is made that the program will read (``fuse.plan.early_output``), short or long;
* at the peak of live bytes, where forward work turns into backward work: what is alive there
  has to exist anyway, and XLA would compute some of it a second time across the border.

docs/planner.md has the measurements behind the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse.plan.repeats import Repeat, find_repeats
from fuse.trace.borders import WHOLE

SHORT = WHOLE * 3 // 4
"""Operations that the forward and the backward pass may each have to be one executable; more
where a device has more operations in one, as with ``SMALLEST``."""
LIGHT = 40
"""Operations that a stretch without anchors needs to be cut off."""
LONGEST = 600
"""Operations a chunk with anchors, outside a repeat, holds at most."""
LONGEST_LIGHT = 2000
"""Operations a chunk without anchors holds at most: they compile quickly."""
SMALLEST = WHOLE // 10
"""Operations a repeated block with anchors holds at least."""
SMALLEST_LIGHT = 150
"""The same without anchors: such operations are cheap beside the call."""
SINGLES = 8
"""Operations on single numbers that count as one: XLA works them out beside what reads them. A
compiled optimizer has nine for every tensor, which count its steps on the device."""
EARLY_OUTPUT = "to the number that the program will read"
"""The reason of a chunk that ends where ``fuse.plan.early_output`` says."""
EARLY_START = "what runs while the rest is recorded"
"""The reason of a chunk that ends where ``fuse.plan.speculation`` says."""
_FOLLOWS = {EARLY_OUTPUT: "what follows that number", EARLY_START: "the rest"}


@dataclass(frozen=True, slots=True)
class Segment:
    """Operations ``start`` to ``stop`` of a trace; ``reason`` says what made it a chunk."""

    start: int
    stop: int
    reason: str


@dataclass(frozen=True, slots=True)
class Outline:
    """What a trace is cut by.

    Attributes:
        tokens: one for each operation, equal where operations are.
        alive: the bytes alive after each.
        light: the maximal stretches ``(start, stop)`` without dense anchors.
        whole: operations that one chunk may have.
        border: the position after which the rest may run while the program goes on, or 0.
        reason: why it is cut there.
        singles: operations on single numbers among these.
        more: operations that its dense anchors count as beside themselves, for what they take to
            compile; without its checks of data, which take next to nothing.
    """

    tokens: Sequence[int]
    alive: Sequence[int]
    light: Sequence[tuple[int, int]]
    whole: int = WHOLE
    border: int = 0
    reason: str = EARLY_OUTPUT
    singles: int = 0
    more: int = 0


def segments(outline: Outline) -> list[Segment]:
    """Cut a trace of ``len(outline.tokens)`` operations."""
    border, reason = outline.border, outline.reason
    result = []
    for piece in _pieces(outline):
        if piece.start < border < piece.stop:
            result.append(Segment(piece.start, border, reason))
            result.append(Segment(border, piece.stop, f"{_FOLLOWS[reason]}; {piece.reason}"))
        else:
            result.append(piece)
    return result


def _pieces(outline: Outline) -> list[Segment]:
    tokens, singles = outline.tokens, outline.singles
    total = len(tokens)
    counted = counted_operations(total, singles)
    if counted + outline.more <= outline.whole:
        text = f"the whole trace: {total} operations are within {outline.whole}"
        if counted != total:
            text += f", {singles} of them on single numbers counted as {counted - total + singles}"
        return [Segment(0, total, text)]
    smallest = SMALLEST_LIGHT * total // counted
    result: list[Segment] = []
    position = 0
    for start, stop in outline.light:
        if stop - start >= LIGHT:
            first = _after_head(start, stop, tokens, smallest)
            result += _heavy(position, first, outline)
            result += _light(first, stop, tokens, outline.alive, smallest)
            position = stop
    return result + _heavy(position, total, outline)


def counted_operations(total: int, singles: int) -> int:
    """How many operations ``total`` ones count as, ``singles`` of them on single numbers."""
    return total - singles + -(-singles // SINGLES)


def _after_head(start: int, stop: int, tokens: Sequence[int], smallest: int) -> int:
    """Where a light stretch's repeats begin, if that is soon: what is before ends heavy work.

    As a chunk of its own it would cost a call, and a deep program an executable that a shallow
    one, whose update is too short to repeat, does not need. For the same reason blocks that
    are equal there too end with the stretch, and what they leave over comes before them.
    """
    repeats = find_repeats(tokens[start:stop], smallest)
    if not repeats:
        return start
    first, last = start + repeats[0].start, start + repeats[-1].stop
    over = first + stop - last
    if len(repeats) == 1 and over - start < LIGHT:
        period = repeats[0].period
        if tokens[over : stop - period] == tokens[over + period : stop]:
            return over
    return first if first - start < LIGHT else start


def _heavy(start: int, stop: int, outline: Outline) -> list[Segment]:
    tokens, alive, border, whole = outline.tokens, outline.alive, outline.border, outline.whole
    short = max(SHORT, SHORT * whole // WHOLE)
    if start < border < stop and max(border - start, stop - border) <= short:
        return _turned(start, stop, alive, border)
    result: list[Segment] = []
    position = start
    for repeat in find_repeats(tokens[start:stop], max(SMALLEST, SMALLEST * whole // WHOLE)):
        first = start + repeat.start
        result += _turned(position, first, alive, border)
        result += _blocks(first, repeat, f", {repeat.period} operations each")
        position = start + repeat.stop
    return result + _turned(position, stop, alive, border)


def _blocks(first: int, repeat: Repeat, what: str) -> list[Segment]:
    starts = range(first, first + repeat.period * repeat.count, repeat.period)
    return [
        Segment(start, start + repeat.period, f"block {number} of {repeat.count}{what}")
        for number, start in enumerate(starts, 1)
    ]


def _turned(start: int, stop: int, alive: Sequence[int], border: int) -> list[Segment]:
    """A stretch between repeats, cut at the peak of live bytes where that lies inside it.

    With the loss inside it that is where it is cut instead, a few operations before the peak.
    """
    if stop <= start:
        return []
    if start < border < stop:
        head = _bounded(start, border, alive, LONGEST)
        head[-1] = Segment(head[-1].start, border, EARLY_OUTPUT)
        return head + _bounded(border, stop, alive, LONGEST)
    peak = max(range(len(alive)), key=alive.__getitem__) + 1
    if start < peak < stop and alive[peak - 1] > 2 * alive[-1]:
        reason = f"to the peak of {alive[peak - 1]} bytes alive, where forward turns backward"
        return [Segment(start, peak, reason), *_bounded(peak, stop, alive, LONGEST)]
    return _bounded(start, stop, alive, LONGEST)


def _light(
    start: int, stop: int, tokens: Sequence[int], alive: Sequence[int], smallest: int
) -> list[Segment]:
    result: list[Segment] = []
    position = start
    for repeat in find_repeats(tokens[start:stop], smallest):
        first = start + repeat.start
        result += _bounded(position, first, alive, LONGEST_LIGHT)
        result += _blocks(first, repeat, " without anchors")
        position = start + repeat.stop
    return result + _bounded(position, stop, alive, LONGEST_LIGHT)


def _bounded(start: int, stop: int, alive: Sequence[int], longest: int) -> list[Segment]:
    result = []
    while stop - start > longest:
        # Low liveness within the last quarter of what is allowed: few bytes cross the border.
        window = range(start + longest * 3 // 4, start + longest)
        border = min(window, key=lambda position: (alive[position], position)) + 1
        reason = f"{alive[border - 1]} bytes alive at its end, the least near {longest} operations"
        result.append(Segment(start, border, reason))
        start = border
    if stop > start:
        result.append(Segment(start, stop, f"{stop - start} operations between borders"))
    return result
