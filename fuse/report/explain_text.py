"""An explanation as text that fits a screen: counters, tiers, chunks, the plan, longest lines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from fuse.engine.timeline import KINDS
from fuse.report.source_lines import code, short
from fuse.report.units import size

WIDTH: Final = 100
INDENT: Final = " " * 12
SEGMENTS, CHUNKS, DECISIONS, LINES = 5, 8, 5, 10
"""Lines of each part at most; where more are left, the text says how many."""
OPERATORS: Final = 3
"""Operators of a line of the source that are named."""


def text(data: dict[str, Any]) -> str:
    """The short text of what ``Explanation.to_dict`` returns."""
    parts = [summary(data), tier_lines(data), _chunks(data), _plan(data), longest(data)]
    return "\n\n".join("\n".join(map(wrapped, part)) for part in parts if part)


def wrapped(line: str) -> str:
    """``line`` in as many lines of a screen as it needs, what follows the first indented."""
    return textwrap.fill(line, WIDTH, subsequent_indent=INDENT, break_on_hyphens=False)


def summary(data: dict[str, Any]) -> list[str]:
    """The counters of the call, and where its time went."""
    counts = data["counts"]
    hits = ", ".join(f"{count} hits in {tier}" for tier, count in counts["cache"].items())
    times = seconds_by_kind(data)
    spent = ", ".join(f"{kind} {seconds(times[kind])}" for kind in KINDS if kind in times)
    planned = sum(trace["planned"] for trace in data["traces"])
    uncompiled = f", {counts['uncompiled']} uncompiled" if counts["uncompiled"] else ""
    lines = [
        f"operations  {counts['operations']} recorded, {counts['known_operations']} of them on "
        f"known streams{uncompiled}",
        f"traces      {counts['traces']}   chunks {counts['chunks']}"
        f"   planned in this call {planned}",
        f"compiles    {counts['compiles']} in {counts['compile_seconds']:.2f} s",
        f"cache       {hits}",
        f"time        {seconds(data['seconds'])}: {spent}",
    ]
    for name in ("cuts", "host_fallbacks"):
        counted = ", ".join(f"{key} {count}" for key, count in counts[name].items())
        lines.append(f"{name.replace('_', ' '):11s} {counted or 'none'}")
    for reason in counts["one_size_each"]:
        lines.append(f"one executable a size in a compiled graph: {reason}")
    return lines


def tier_lines(data: dict[str, Any]) -> list[str]:
    """In which tier the segments of the call ran, and why, equal ones together."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in data["segments"]:
        found.setdefault((one["operator"], one["why"]), []).append(one)
    rows = [
        f"  {_times(ones)}from {operator}, {_between(one['calls'] for one in ones)} calls"
        f"{_took(ones)}: {why}"
        for (operator, why), ones in found.items()
    ]
    if not rows:
        return []
    return [_settled(data["steady"]), *_most(rows, SEGMENTS, "segments of other kinds")]


def _settled(steady: dict[str, Any] | None) -> str:
    if steady is None:
        return "segments    calls from one cut to the next, all recorded here to be explained"
    after = f"after {steady['calls']} calls in {seconds(steady['seconds'])}"
    if steady["settled"]:
        return f"segments    as they run {after}, decided"
    return f"segments    as they run {after}: {steady['why']}"


def _times(ones: Sequence[object]) -> str:
    return f"{len(ones)} times " if len(ones) > 1 else ""


def _between(counts: Any) -> str:
    least, *_, most = sorted([*counts] * 2)
    return f"{least}" if least == most else f"{least} to {most}"


def _took(ones: list[dict[str, Any]]) -> str:
    times = [one["seconds"] for one in ones if one["seconds"] is not None]
    return f" in {seconds(sum(times))}" if times else ""


def _most(rows: list[str], count: int, what: str) -> list[str]:
    left = len(rows) - count
    return rows if left <= 0 else [*rows[:count], f"  and {left} more {what}"]


def seconds_by_kind(data: dict[str, Any]) -> dict[str, float]:
    """Seconds of the call by what they went into. What ran at once counts each time."""
    found: dict[str, float] = {}
    for event in data["timeline"]:
        found[event["kind"]] = found.get(event["kind"], 0.0) + event["seconds"]
    return found


def seconds(value: float) -> str:
    """A time with a unit in which it is easy to read."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"


def groups(chunks: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Chunks in order, neighbours that share an executable together."""
    found: list[list[dict[str, Any]]] = []
    for chunk in chunks:
        if found and found[-1][0]["executable"] == chunk["executable"]:
            found[-1].append(chunk)
        else:
            found.append([chunk])
    return found


def numbers(group: list[dict[str, Any]]) -> str:
    """Which chunks of their trace a group is."""
    first, last = group[0]["number"], group[-1]["number"]
    return f"{first}" if len(group) == 1 else f"{first} to {last} (x{len(group)})"


def made(chunk: dict[str, Any]) -> str:
    """Where an executable came from, and how long that took."""
    tier = chunk["tier"]
    if tier == "pending":
        return "pending, ran uncompiled"
    took = f" in {seconds(chunk['make_seconds'])}" if chunk["make_seconds"] else ""
    return f"{'compiled' if tier == 'compiled' else f'from {tier}'}{took}"


def _chunks(data: dict[str, Any]) -> list[str]:
    found = [(trace, group) for trace in data["traces"] for group in groups(trace["chunks"])]
    if not found:
        return []
    head = "chunks      numbered as trace.chunk, neighbours that share an executable together"
    if len(found) > CHUNKS:
        head = f"chunks      as trace.chunk, the {CHUNKS} longest of {len(found)}; "
        head += "neighbours that share an executable together"
        found.sort(key=lambda one: -_ran(one[1]))
    lines = [head, f"{'':14s}{'operations':>10}  {'in':>13}  {'out':>13}  donated  {'ran':>9}"]
    for trace, group in found[:CHUNKS]:
        first = group[0]
        name = f"  {trace['number']}.{first['number']}"
        name += f" x{len(group)}" if len(group) > 1 else ""
        sides = [f"{len(first[side])}, {size(first[f'bytes_{to}'])}" for side, to in _SIDES]
        lines.append(
            f"{name:14s}{len(first['operations']):>10}  {sides[0]:>13}  {sides[1]:>13}  "
            f"{len(first['donated']):>7}  {seconds(_ran(group)):>9}  {made(first)}"
        )
    return lines


_SIDES = (("inputs", "in"), ("outputs", "out"))


def _ran(group: list[dict[str, Any]]) -> float:
    return float(sum(chunk["run_seconds"] for chunk in group))


def decisions(trace: dict[str, Any]) -> list[str]:
    """The planner's decisions; those on the same executable's next chunks are not repeated."""
    folded_away = {
        f"chunk {chunk['number']}: " for group in groups(trace["chunks"]) for chunk in group[1:]
    }
    return [
        line
        for line in trace["decisions"]
        if not any(line.startswith(start) for start in folded_away)
    ]


def _plan(data: dict[str, Any]) -> list[str]:
    found: dict[str, int] = {}
    for trace in data["traces"]:
        for decision in decisions(trace):
            found[decision] = found.get(decision, 0) + 1
    rows = [
        f"  {decision}{f' ({times} traces)' if times > 1 else ''}"
        for decision, times in found.items()
    ]
    rows = [_shortened(row) for row in rows]
    return ["plan", *_most(rows, DECISIONS, "decisions")] if rows else []


def _shortened(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def longest(data: dict[str, Any]) -> list[str]:
    """The lines of the user's source that took longest."""
    total = sum(line["seconds"] for line in data["lines"])
    if not total:
        return []
    rows = []
    for line in data["lines"]:
        names = ", ".join(line["operators"][:OPERATORS])
        more = len(line["operators"]) - OPERATORS
        what = code(line["source"]) or names + (f" and {more} more" if more > 0 else "")
        place = short(line["source"])
        share = f"  {line['seconds'] / total:>4.0%}  {seconds(line['seconds']):>9}"
        rows.append(_shortened(f"{share}  {line['operations']:>4} operations  {place}  {what}"))
    head = "lines       a chunk's time shared by the bytes that its operations read and write"
    return [head, *_most(rows, LINES, "lines")]
