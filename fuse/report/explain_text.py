"""An explanation as text: counters, then each trace with its plan and its chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fuse.engine.timeline import KINDS

_LISTED = 6  # donated values of a chunk that the text names


def text(data: dict[str, Any]) -> str:
    """The text of what ``Explanation.to_dict`` returns."""
    return "\n".join([*summary(data), *(line for trace in data["traces"] for line in _of(trace))])


def summary(data: dict[str, Any]) -> list[str]:
    """The counters of the call, and where its time went."""
    counts = data["counts"]
    hits = ", ".join(f"{count} hits in {tier}" for tier, count in counts["cache"].items())
    times = seconds_by_kind(data)
    spent = ", ".join(f"{kind} {seconds(times[kind])}" for kind in KINDS if kind in times)
    lines = [
        f"operations  {counts['operations']} ({counts['known_operations']} on known streams)",
        f"traces      {counts['traces']}   chunks {counts['chunks']}",
        f"compiles    {counts['compiles']} in {counts['compile_seconds']:.2f} s",
        f"cache       {hits}",
        f"time        {seconds(data['seconds'])}: {spent}",
    ]
    for name in ("cuts", "host_fallbacks"):
        lines.append(f"{name.replace('_', ' '):11s} {counts[name] or 'none'}")
    for reason in counts["one_size_each"]:
        lines.append(f"one executable a size in a compiled graph: {reason}")
    return lines


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


def folded(trace: dict[str, Any]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The trace's operations in order as ``(times, operations)``, repeats folded into one."""
    operations, at = trace["operations"], 0
    for repeat in trace["repeats"]:
        if repeat["start"] > at:
            yield 1, operations[at : repeat["start"]]
        yield repeat["count"], operations[repeat["start"] : repeat["start"] + repeat["period"]]
        at = repeat["start"] + repeat["period"] * repeat["count"]
    if at < len(operations):
        yield 1, operations[at:]


def groups(chunks: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Chunks in order, neighbours that share an executable together."""
    found: list[list[dict[str, Any]]] = []
    for chunk in chunks:
        if found and found[-1][0]["executable"] == chunk["executable"]:
            found[-1].append(chunk)
        else:
            found.append([chunk])
    return found


def chunk_lines(group: list[dict[str, Any]]) -> list[str]:
    """One executable and its neighbouring chunks: what goes in and out, and what it took."""
    first, last = group[0], group[-1]
    name = f"chunk {first['number']}"
    if len(group) > 1:
        name += f" to {last['number']} (x{len(group)})"
    ran = [chunk["run_seconds"] for chunk in group]
    each = f" ({len(ran)} runs of {seconds(min(ran))} to {seconds(max(ran))})"
    lines = [
        f"{name}: {len(first['operations'])} operations, {len(first['inputs'])} arrays in "
        f"({first['bytes_in']} bytes), {len(first['outputs'])} out ({first['bytes_out']} bytes), "
        f"{len(first['donated'])} donated, ran {seconds(sum(ran))}{each if len(ran) > 1 else ''}"
    ]
    if first["donated"]:
        more = len(first["donated"]) - _LISTED
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"  donated {', '.join(first['donated'][:_LISTED])}{rest}")
    lines.append(f"  executable {first['executable'][:12]}, {first['label']}: {made(first)}")
    return lines + [f"    {line}" for line in first["miss"].splitlines()]


def made(chunk: dict[str, Any]) -> str:
    """Where an executable came from, and how long that took."""
    tier = chunk["tier"]
    if tier == "pending":
        return "pending; it ran uncompiled"
    took = f" in {seconds(chunk['make_seconds'])}" if chunk["make_seconds"] else ""
    return f"{'compiled' if tier == 'compiled' else f'from {tier}'}{took}"


def _of(trace: dict[str, Any]) -> list[str]:
    number, reason, runs = trace["number"], trace["reason"], trace["runs"]
    known = "" if trace["planned"] else ", planned before this call"
    lines = ["", f"trace {number}, cut by {reason}, run {runs} times so far{known}"]
    lines += [f"  leaf {leaf['text']}" for leaf in trace["leaves"]]
    for times, operations in folded(trace):
        if times > 1:
            lines.append(f"  x{times}, {len(operations)} operations, shown once:")
        indent = "    " if times > 1 else "  "
        lines += [f"{indent}{one['text']}    # {one['source']}" for one in operations]
    lines += [f"  plan: {decision}" for decision in decisions(trace)]
    for group in groups(trace["chunks"]):
        lines += [f"  {line}" for line in chunk_lines(group)]
    return lines


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
