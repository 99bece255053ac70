"""An explanation as text, all of it: each trace with its operations, its plan and its chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuse.report.explain_text import (
    decisions,
    groups,
    longest,
    made,
    numbers,
    seconds,
    summary,
    tier_lines,
)

_LISTED = 6  # donated values of a chunk that the text names


def full_text(data: dict[str, Any]) -> str:
    """The text of what ``Explanation.to_dict`` returns, nothing left out but repeats."""
    parts = [summary(data), tier_lines(data), *map(_trace, data["traces"]), longest(data)]
    return "\n\n".join("\n".join(part) for part in parts if part)


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


def chunk_lines(group: list[dict[str, Any]]) -> list[str]:
    """One executable and its neighbouring chunks: what goes in and out, and what it took."""
    first = group[0]
    ran = [chunk["run_seconds"] for chunk in group]
    each = f" ({len(ran)} runs of {seconds(min(ran))} to {seconds(max(ran))})"
    lines = [
        f"chunk {numbers(group)}: {len(first['operations'])} operations, "
        f"{len(first['inputs'])} arrays in "
        f"({first['bytes_in']} bytes), {len(first['outputs'])} out ({first['bytes_out']} bytes), "
        f"{len(first['donated'])} donated, ran {seconds(sum(ran))}{each if len(ran) > 1 else ''}"
    ]
    if first["donated"]:
        more = len(first["donated"]) - _LISTED
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"  donated {', '.join(first['donated'][:_LISTED])}{rest}")
    lines.append(f"  executable {first['executable'][:12]}, {first['label']}: {made(first)}")
    return lines + [f"    {line}" for line in first["miss"].splitlines()]


def _trace(trace: dict[str, Any]) -> list[str]:
    number, reason, runs = trace["number"], trace["reason"], trace["runs"]
    known = "" if trace["planned"] else ", planned before this call"
    lines = [f"trace {number}, cut by {reason}, run {runs} times so far{known}"]
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
