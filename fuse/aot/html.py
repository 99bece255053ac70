"""A target's report as one HTML page that loads nothing: no script, no font, no picture."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from fuse.aot.text import advice, amount, chunk_lines, failures, place, summary

_WIDTH: Final = 1000
_COLOURS: Final = {"compute": "#3a8fb7", "memory": "#e07b39", "launch": "#9aa5b1"}
_STYLE: Final = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; color: #222; }
pre { font: 12px/1.45 ui-monospace, monospace; background: #f6f7f9; padding: 8px 12px;
  overflow-x: auto; }
svg { background: #f6f7f9; width: 100%; } svg text { font: 11px ui-monospace, monospace; }
"""


def page(data: dict[str, Any]) -> str:
    """The page of what ``TargetReport.to_dict`` returns; every text of the program is escaped."""
    body = [
        f"<h1>One call on {escape(data['target'])}</h1>",
        _pre([*summary(data), *failures(data)]),
        "<h2>The call, by chunks</h2>",
        _bars(data),
        "<h2>Advice</h2>",
        _pre(advice(data)),
    ]
    for chunk in sorted(data["chunks"], key=lambda one: -one["seconds"] * one["runs"]):
        body += [f"<h2>Chunk {chunk['number']}</h2>", _costs(chunk), _pre(chunk_lines(chunk))]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f"<title>fuse: {escape(data['target'])}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _pre(lines: list[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _bars(data: dict[str, Any]) -> str:
    """The chunks side by side, as wide as what all their runs cost, coloured by their bound."""
    total = max(data["seconds"], 1e-15)
    parts = [f'<svg viewBox="0 0 {_WIDTH} 60" role="img" aria-label="{_unit(data)} by chunk">']
    at = 0.0
    for chunk in data["chunks"]:
        seconds = chunk["seconds"] * chunk["runs"]
        cycles = None if chunk["cycles"] is None else chunk["cycles"] * chunk["runs"]
        taken = amount(cycles, seconds)
        title = f"chunk {chunk['number']} x{chunk['runs']}: {taken}, {chunk['label']}"
        parts.append(_bar(at, 4, _WIDTH * seconds / total, _COLOURS[chunk["bound"]], title))
        at += _WIDTH * seconds / total
    for number, (name, colour) in enumerate(_COLOURS.items()):
        parts.append(_bar(number * 130 + 4, 40, 12, colour, name))
        parts.append(f'<text x="{number * 130 + 20}" y="52">bound by {name}</text>')
    return "\n".join([*parts, "</svg>"])


def _costs(chunk: dict[str, Any]) -> str:
    """A bar an operation, dearest first."""
    costs = chunk["costs"][:20]
    if not costs:
        return ""
    most = max(costs[0]["seconds"], 1e-15)
    height = 18 * len(costs) + 4
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{_unit(chunk)} by operation">'
    ]
    for row, cost in enumerate(costs):
        label = f"{amount(cost['cycles'], cost['seconds'])}  {place(cost)}"
        width = 400 * cost["seconds"] / most
        parts.append(_bar(0, row * 18 + 3, width, _COLOURS[chunk["bound"]], label))
        parts.append(f'<text x="{width + 6:.1f}" y="{row * 18 + 14}">{escape(label[:110])}</text>')
    return "\n".join([*parts, "</svg>"])


def _unit(data: dict[str, Any]) -> str:
    return "time" if data["cycles"] is None else "cycles"


def _bar(x: float, y: float, width: float, colour: str, title: str) -> str:
    wide = max(width, 0.5)  # what is too little to scale is still seen
    return (
        f'<rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="14" fill="{colour}" '
        f'stroke="#fff" stroke-width="0.3"><title>{escape(title)}</title></rect>'
    )
