"""A pod's report as text, and as one HTML page that loads nothing."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from fuse.aot.text import first_line, time, top
from fuse.report.units import size

_WIDTH: Final = 1000
_STYLE: Final = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; color: #222; }
pre { font: 12px/1.45 ui-monospace, monospace; background: #f6f7f9; padding: 8px 12px; }
svg { background: #f6f7f9; width: 100%; } svg text { font: 11px ui-monospace, monospace; }
"""
LISTED: Final = 8
"""Collectives and arrays that are named, dearest first."""


def text(data: dict[str, Any]) -> str:
    """The text of what ``PodReport.to_dict`` returns."""
    head = [f"target       {data['target']}, {data['ranks']} ranks; no TPU ran"]
    if data["error"]:
        return "\n".join([*head, f"refused      {first_line(data['error'])}"])
    return "\n".join([*head, *_figures(data), *_collectives(data), *_memory(data), *_notes(data)])


def _figures(data: dict[str, Any]) -> list[str]:
    return [
        f"step         {time(data['step_seconds'])}: computing "
        f"{time(data['compute_seconds'])}, waiting for links {time(data['exposed_seconds'])}",
        f"MFU          {data['mfu']:.1%}: {data['flops'] / 1e12:.2f} TFLOP a rank at "
        f"{data['machine']['flops'] / 1e12:.0f} TFLOP/s",
    ]


def _collectives(data: dict[str, Any]) -> list[str]:
    lines = [f"collectives  {sum(one['count'] for one in data['collectives'])}"]
    order = sorted(data["collectives"], key=lambda one: -one["seconds"])
    lines += [
        f"  {one['count']:>4} {one['kind']} of {size(one['nbytes'])} over {one['ranks']}: "
        f"{time(one['seconds'])}, of it {time(one['exposed'])} exposed"
        for one in order[:LISTED]
    ]
    return lines


def _memory(data: dict[str, Any]) -> list[str]:
    memory, peak = data["machine"]["memory"], data["peak_bytes"]
    inside = f"{size(data['temporary_bytes'])} temporary, {size(data['code_bytes'])} code"
    lines = [f"memory       {size(peak)} of {size(memory)} ({peak / memory:.0%}): {inside}"]
    if not data["fits"]:
        lines[0] += "; it does not fit"
        lines += [
            f"  {one['count']:>4} {one['array']}: {size(one['nbytes'] * one['count'])}"
            for one in data["largest"][:LISTED]
        ]
    return lines


def _notes(data: dict[str, Any]) -> list[str]:
    lines = ["assumes"] + [f"  {one}" for one in data["assumes"]]
    if data["options"]:
        lines.append("compiled by  " + ", ".join(f"{k}={v}" for k, v in data["options"].items()))
    if data["unestimated"]:
        listed = ", ".join(f"{count} {name}" for name, count in top(data["unestimated"]))
        lines.append(f"no estimate  {listed}")
    for line, count in list(data["reads"].items())[:LISTED]:
        lines.append(f"stand-in     read {count} times at {line or 'no line'}")
    return lines


def page(data: dict[str, Any]) -> str:
    """The page: the text, and below it the step from left to right."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f"<title>fuse: {escape(data['target'])}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        f"<h1>One step on {escape(data['target'])}</h1>\n<pre>{escape(text(data))}</pre>\n"
        f"<h2>The step</h2>\n{_timeline(data)}\n</body>\n</html>\n"
    )


def _timeline(data: dict[str, Any]) -> str:
    """Links above, and below when the chips compute and when they wait for these."""
    whole = max(data["step_seconds"], 1e-12)
    parts = [f'<svg viewBox="0 0 {_WIDTH} 60" role="img" aria-label="the step over time">']
    computed = 0.0
    for one in data["timeline"]:
        title = f"{one['kind']}: {time(one['takes'])}, {time(one['exposed'])} exposed"
        parts.append(_bar(one["begins"], one["takes"], whole, 6, "#3a8fb7", title))
        ends = one["begins"] + one["takes"]
        if one["exposed"]:
            waits = ends - one["exposed"]
            parts += _computing(computed, waits, whole)
            parts.append(_bar(waits, one["exposed"], whole, 30, "#e07b39", title))
            computed = ends
    parts += _computing(computed, whole, whole)
    legend = "<p>blue: links busy; green: computing; orange: nothing is computed</p>"
    return "\n".join([*parts, "</svg>", legend])


def _computing(begins: float, ends: float, whole: float) -> list[str]:
    """A bar of what is computed between two waits."""
    if ends <= begins:
        return []
    title = f"computing: {time(ends - begins)}"
    return [_bar(begins, ends - begins, whole, 30, "#5b9e5f", title)]


def _bar(begins: float, takes: float, whole: float, y: int, colour: str, title: str) -> str:
    return (
        f'<rect x="{_WIDTH * begins / whole:.2f}" y="{y}" '
        f'width="{max(_WIDTH * takes / whole, 0.5):.2f}" height="18" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )
