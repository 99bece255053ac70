"""An explanation as one HTML page that loads nothing: no script, no font, no picture."""

from __future__ import annotations

from html import escape
from typing import Any

from fuse.engine.timeline import KINDS
from fuse.report.explain_full import chunk_lines, folded
from fuse.report.explain_text import (
    decisions,
    groups,
    longest,
    made,
    numbers,
    seconds,
    seconds_by_kind,
    summary,
    tier_lines,
)

COLOURS = {
    "recording": "#9aa5b1",
    "planning": "#b07cc6",
    "compiling": "#e07b39",
    "loading": "#e0b939",
    "executing": "#3a8fb7",
    "reading": "#5aa469",
    "writing": "#7a9e3f",
}
_WIDTH, _LEFT, _ROW = 1000, 90, 22
_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; color: #222; }
pre, td, th, code { font: 12px/1.45 ui-monospace, monospace; }
pre { background: #f6f7f9; padding: 8px 12px; overflow-x: auto; }
table { border-collapse: collapse; } td, th { padding: 2px 10px; text-align: right; }
td.text, th.text { text-align: left; } tr:nth-child(even) { background: #f6f7f9; }
.source { color: #888; } .times { color: #b0451e; font-weight: bold; }
svg { background: #f6f7f9; width: 100%; } svg text { font: 11px ui-monospace, monospace; }
"""


def page(data: dict[str, Any]) -> str:
    """The page of what ``Explanation.to_dict`` returns; every text of the program is escaped."""
    body = [
        "<h1>What the device did</h1>",
        *(
            f"<pre>{escape(chr(10).join(part))}</pre>"
            for part in (summary(data), tier_lines(data), longest(data))
            if part
        ),
        "<h2>Timeline</h2>",
        timeline(data),
        *(line for trace in data["traces"] for line in _trace(trace)),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f"<title>fuse.explain</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def timeline(data: dict[str, Any]) -> str:
    """An SVG: a row for each kind of work, a box for each stretch of it, to scale."""
    times = seconds_by_kind(data)
    rows = [kind for kind in KINDS if kind in times]
    total = max(data["seconds"], 1e-9)
    scale = (_WIDTH - _LEFT) / total
    height = _ROW * len(rows) + 24
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline">']
    for row, kind in enumerate(rows):
        parts.append(f'<text x="4" y="{row * _ROW + 15}">{kind}</text>')
        for event in data["timeline"]:
            if event["kind"] == kind:
                parts.append(_box(event, row, scale))
    for part in range(5):
        x = _LEFT + (_WIDTH - _LEFT) * part / 4
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        label = seconds(total * part / 4)
        parts.append(f'<text x="{x:.0f}" y="{height - 6}" text-anchor="{anchor}">{label}</text>')
    return "\n".join([*parts, "</svg>"])


def _box(event: dict[str, Any], row: int, scale: float) -> str:
    x = _LEFT + event["start"] * scale
    width = max(event["seconds"] * scale, 0.5)  # what is too short to scale is still seen
    where = "" if event["chunk"] is None else f" chunk {event['chunk']} of trace {event['trace']}"
    about = f"{event['kind']}{where} {event['label']}".rstrip()
    title = f"{about}: {seconds(event['seconds'])} from {seconds(max(event['start'], 0.0))}"
    return (
        f'<rect x="{x:.2f}" y="{row * _ROW + 3}" width="{width:.2f}" height="{_ROW - 6}" '
        f'fill="{COLOURS[event["kind"]]}"><title>{escape(title)}</title></rect>'
    )


def _trace(trace: dict[str, Any]) -> list[str]:
    known = "" if trace["planned"] else ", planned before this call"
    head = f"Trace {trace['number']}, cut by {trace['reason']}"
    return [
        f"<h2>{escape(head)}</h2>",
        f"<p>Run {trace['runs']} times so far{known}.</p>",
        _chunks(trace),
        f"<pre>{escape(chr(10).join(decisions(trace)))}</pre>",
        f"<details><summary>{len(trace['operations'])} operations</summary>",
        f"<pre>{_operations(trace)}</pre></details>",
    ]


def _operations(trace: dict[str, Any]) -> str:
    lines = [escape(f"leaf {leaf['text']}") for leaf in trace["leaves"]]
    for times, operations in folded(trace):
        if times > 1:
            note = f"x{times}, {len(operations)} operations, shown once:"
            lines.append(f'<span class="times">{note}</span>')
        lines += [
            f"{'  ' if times > 1 else ''}{escape(one['text'])}"
            f'    <span class="source"># {escape(one["source"])}</span>'
            for one in operations
        ]
    return "\n".join(lines)


_COLUMNS = ("chunk", "operations", "bytes in", "bytes out", "donated", "ran", "executable")


def _chunks(trace: dict[str, Any]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    rows = []
    for group in groups(trace["chunks"]):
        first = group[0]
        cells = (
            numbers(group),
            f"{len(first['operations'])}",
            f"{first['bytes_in']}",
            f"{first['bytes_out']}",
            f"{len(first['donated'])}",
            seconds(sum(chunk["run_seconds"] for chunk in group)),
            f"{first['executable'][:12]}, {made(first)}",
        )
        # All of it, with operators and reasons of a miss, where the pointer rests.
        about = "\n".join([*chunk_lines(group), " ".join(first["operations"])])
        row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr title="{escape(about)}">{row}</tr>')
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"
