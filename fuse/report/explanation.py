"""What ``fuse.explain`` returns: what the device did in one call, as text, data and a page."""

from __future__ import annotations

from typing import Any, final

from fuse.engine.executables import Found
from fuse.engine.runnable import Runnable
from fuse.engine.timeline import Timeline, recording
from fuse.plan.plan import PlannedChunk
from fuse.plan.repeats import find_repeats
from fuse.report.explain_full import full_text
from fuse.report.explain_html import page
from fuse.report.explain_text import text
from fuse.report.page import Page
from fuse.report.source_lines import source_lines
from fuse.trace.signature import tokens
from fuse.trace.spec import Layout

FOLDED = 4
"""Operations that a repeated segment holds at least to be shown once."""


@final
class Explanation(Page, str):
    """What the device did in one call, as text; also as data and as a page.

    ``print`` it, search it: it is a ``str``.
    """

    _data: dict[str, Any]

    @classmethod
    def of(cls, data: dict[str, Any], full: bool = False) -> Explanation:
        """The explanation that ``data`` holds; see ``to_dict`` for its keys.

        ``full`` chooses the text with every operation.
        """
        made = cls(full_text(data) if full else text(data))
        made._data = data
        return made

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data that ``json.dumps`` takes.

        Keys:
            seconds: how long the call took, with its chunks waited for.
            counts: ``operations``, ``known_operations``, ``uncompiled`` (operations), ``traces``,
                ``chunks``, ``compiles``, ``compile_seconds``, ``cache`` (where -> hits), ``cuts``
                (reason -> count), ``host_fallbacks`` (operator -> count) and ``one_size_each``
                (why graphs of torch.compile do not run at the sizes of buckets -> calls), of this
                call only.
            steady: ``None``, or of the calls before this one ``calls``, ``seconds``, ``settled``
                (whether all tiers are decided), and ``why`` not.
            segments: the calls from one cut to the next, in order: ``operator`` (that it begins
                with), ``calls``, ``tier`` that it ran in, ``seconds`` (``None`` if compiled),
                ``trace`` (its number, ``None`` if uncompiled) and ``why``.
            lines: of the source, longest first: ``source``, ``seconds`` (of its chunks' time,
                shared among operations by bytes), ``operations`` and ``operators``.
            timeline: a list of ``kind`` (``fuse.engine.timeline.KINDS``), ``label``, ``start`` and
                ``seconds`` from the call's start, ``trace`` and ``chunk`` (numbers or None).
            traces: one a cut, in order: ``number``, ``reason`` (why it was cut), ``runs`` (of
                its plan in this process so far), ``planned`` (whether in this call), ``leaves``
                (``text``, ``bytes``), ``operations`` (``text``, ``source``), ``repeats``
                (``start``, ``period``, ``count``: equal segments), ``decisions`` (texts of the
                planner), and ``chunks`` in order: ``number``, ``operations`` (overloads),
                ``inputs`` and ``outputs`` (``text``, ``bytes``), ``bytes_in``, ``bytes_out``,
                ``donated`` (values whose memory is reused), ``executable`` (its key's digest),
                ``label``, ``tier`` (``memory``, ``disk``, ``shared``, ``compiled`` or
                ``pending``), ``make_seconds`` (compiling or loading it), ``run_seconds`` (this
                run, waited for), ``miss`` (why no tier had it; empty where one had).
        """
        return self._data

    def to_html(self) -> str:
        """A page with the call's timeline and everything of the text; it loads nothing."""
        return page(self._data)


def gather(
    timeline: Timeline, before: dict[str, Any], after: dict[str, Any], start: float, stop: float
) -> dict[str, Any]:
    """What ``Explanation.to_dict`` returns but for its tiers, from counters of before and after."""
    events = [*timeline.events, *recording(timeline.events, start, stop)]
    return {
        "seconds": stop - start,
        "counts": _counts(before, after),
        "timeline": [
            {
                "kind": event.kind,
                "label": event.label,
                "start": max(event.start, start) - start,
                "seconds": event.stop - max(event.start, start),
                "trace": None if event.kind == "recording" else event.trace,
                "chunk": event.chunk,
            }
            for event in sorted(events, key=lambda event: event.start)
        ],
        "traces": [
            _trace(number, reason, runnable, timeline)
            for number, (reason, runnable) in enumerate(timeline.traces)
        ],
        "lines": source_lines(timeline),
    }


_GROWING = ("operations", "known_operations", "traces", "chunks", "compiles", "compile_seconds")


def _counts(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: after[name] - before[name] for name in _GROWING}
    found["uncompiled"] = after["uncompiled_operations"] - before["uncompiled_operations"]
    found["cache"] = {
        name: tier["hits"] - before["cache"][name]["hits"] for name, tier in after["cache"].items()
    }
    for name in ("cuts", "host_fallbacks"):
        found[name] = _grown(before[name], after[name])
    sized = (counts["compiled"]["one_size_calls"] for counts in (before, after))
    found["one_size_each"] = _grown(*sized)
    return found


def _grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    grown = {key: count - before.get(key, 0) for key, count in after.items()}
    return {key: count for key, count in grown.items() if count}


def _trace(number: int, reason: str, runnable: Runnable, timeline: Timeline) -> dict[str, Any]:
    plan = runnable.plan
    layouts = plan.trace.layouts()
    of_this = [event for event in timeline.events if event.trace == number]
    ran = {event.chunk: event.stop - event.start for event in of_this if event.kind == "executing"}
    return {
        "number": number,
        "reason": reason,
        "runs": runnable.runs,
        "planned": any(event.kind == "planning" for event in of_this),
        "leaves": [_value(leaf.value, layouts) for leaf in plan.trace.leaves],
        "operations": [{"text": str(node), "source": node.source} for node in plan.trace.nodes],
        "repeats": [
            {"start": found.start, "period": found.period, "count": found.count}
            for found in find_repeats(tokens(plan.trace.nodes), FOLDED)
        ],
        "decisions": list(plan.decisions),
        "chunks": [
            _chunk(index, piece, stage.found, layouts, ran.get(index, 0.0))
            for index, (piece, stage) in enumerate(zip(plan.chunks, runnable.stages, strict=True))
        ],
    }


def _chunk(
    number: int, piece: PlannedChunk, found: Found, layouts: dict[int, Layout], seconds: float
) -> dict[str, Any]:
    inputs = [_value(leaf.value, layouts) for leaf in piece.inputs]
    outputs = [_value(value, layouts) for value in piece.outputs]
    return {
        "number": number,
        "operations": [node.op for node in piece.nodes],
        "inputs": inputs,
        "outputs": outputs,
        "bytes_in": sum(one["bytes"] for one in inputs),
        "bytes_out": sum(one["bytes"] for one in outputs),
        "donated": [inputs[position]["text"] for position in piece.donated],
        "executable": found.digest,
        "label": found.label,
        "tier": found.origin,
        "make_seconds": found.seconds,
        "run_seconds": seconds,
        "miss": found.miss,
    }


def _value(value: int, layouts: dict[int, Layout]) -> dict[str, Any]:
    return {"text": f"%{value}:{layouts[value]}", "bytes": layouts[value].nbytes}
