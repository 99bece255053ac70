"""A target's report as text."""

from __future__ import annotations

from typing import Any, Final

from fuse.report.units import size

LISTED: Final = 8
"""Operations of a chunk that the text names, dearest first; and chunks with their costs."""


def text(data: dict[str, Any]) -> str:
    """The text of what ``TargetReport.to_dict`` returns."""
    lines = [*summary(data), *failures(data), *advice(data)]
    order = sorted(data["chunks"], key=lambda chunk: -chunk["seconds"] * chunk["runs"])
    for chunk in order[:LISTED]:
        lines += ["", *chunk_lines(chunk)]
    if len(order) > LISTED:
        seconds = sum(chunk["seconds"] * chunk["runs"] for chunk in order[LISTED:])
        cycles = None
        if data["cycles"] is not None:
            cycles = sum(chunk["cycles"] * chunk["runs"] for chunk in order[LISTED:])
        lines += ["", f"{len(order) - LISTED} more chunks: {amount(cycles, seconds)}"]
    return "\n".join(lines)


def summary(data: dict[str, Any]) -> list[str]:
    """What the call costs on the target."""
    machine = data["machine"]
    share = data["peak_bytes"] / machine["memory"]
    cuts = ", ".join(f"{name} {count}" for name, count in data["cuts"].items()) or "none"
    return [
        f"target    {data['target']}, compiled by {data['compiler'].get('compiler', '?')}",
        f"          {data['note']}",
        *_cost(data),
        f"memory    {size(data['peak_bytes'])} of {size(machine['memory'])} ({share:.1%})"
        + ("" if data["fits"] else ": it does not fit"),
        f"cuts      {cuts}",
    ]


def _cost(data: dict[str, Any]) -> list[str]:
    """What the call takes by the target's model, and its launches."""
    machine, host = data["machine"], f"the host's part {time(data['launch_seconds'])}"
    if data["cycles"] is None:
        return [
            f"time      {time(data['seconds'])} at least, by the roofline of "
            f"{machine['bandwidth'] / 1e9:,.0f} GB/s and {machine['flops'] / 1e12:,.0f} TFLOP/s "
            "(bfloat16)",
            f"kernels   {data['kernels']}; the time that each takes to begin is in no figure",
            f"launches  {data['launches']}, apart from that time: {host}",
        ]
    return [
        f"cycles    {data['cycles']:,} ({time(data['seconds'])} at "
        f"{machine['clock'] / 1e9:.2f} GHz)",
        f"launches  {data['launches']}, apart from the cycles: {host}",
    ]


def amount(cycles: int | None, seconds: float) -> str:
    """What something costs: the compiler's cycles where it estimates them, else a time."""
    return time(seconds) if cycles is None else f"{cycles:,} cycles"


def failures(data: dict[str, Any]) -> list[str]:
    """What the compiler refuses, and what runs on the host for that."""
    lines = [f"failures  {len(data['failures']) or 'none'}"]
    for one in data["failures"]:
        lines += [f"  {place(one)}", f"    {one['kind']}: {first_line(one['reason'])}"]
    if data["host_calls"]:
        lines.append(f"on the host, as the target cannot run them: {len(data['host_calls'])}")
        lines += [f"  {place(one)}: {one['reason']}" for one in data["host_calls"]]
    return lines


def advice(data: dict[str, Any]) -> list[str]:
    """What to change, and what compiling the change gained."""
    if not data["advice"]:
        return ["advice    none"]
    lines = ["advice"]
    for one in data["advice"]:
        lines += [f"  {one['gain']:.0%} {one['what']}", f"    at {one['source'] or 'no line'}"]
        lines.append(f"    {one['change']}")
        lines.append(f"    {one['proof']}")
    return lines


def chunk_lines(chunk: dict[str, Any]) -> list[str]:
    """One executable of the target: what it costs, and which operations cost it."""
    times = "once" if chunk["runs"] == 1 else f"{chunk['runs']} times"
    lines = [f"chunk {chunk['number']}: {chunk['label']}, run {times}"]
    if chunk["error"]:
        return [*lines, f"  refused: {first_line(chunk['error'])}"]
    counts = chunk["cycles"] is not None
    taken = (
        f"{chunk['cycles']:,} cycles ({time(chunk['seconds'])})"
        if counts
        else (f"{time(chunk['seconds'])} at least in {chunk['kernels']} kernels")
    )
    padding = f", {chunk['padding']:.0%} of what goes in and out is padding" if counts else ""
    lines += [
        f"  {taken}, bound by its {chunk['bound']}: "
        + ", ".join(f"{name} {time(value)}" for name, value in chunk["bound_seconds"].items()),
        f"  {size(chunk['bytes_in'])} in, {size(chunk['bytes_out'])} out, "
        f"{size(chunk['temporary_bytes'])} temporary{padding}",
    ]
    if chunk["kernel_cycles"]:
        lines.append(
            f"  kernels: {chunk['kernel_cycles']:,} of the cycles, from the work that they state"
        )
    if chunk["unestimated"]:
        listed = ", ".join(f"{count} {name}" for name, count in top(chunk["unestimated"]))
        what = "the cycles" if counts else "that time"
        lines.append(f"  without an estimate, not in {what}: {listed}")
    if chunk["unknown_loops"]:
        lines.append(f"  {chunk['unknown_loops']} loops of unknown length, counted as one trip")
    for cost in chunk["costs"][:LISTED]:
        share = cost["seconds"] / max(chunk["seconds"], 1e-15)
        shown = f"{cost['cycles']:,}" if counts else time(cost["seconds"])
        lines.append(f"  {shown:>12}  {share:4.0%}  {place(cost)}")
    return lines


def top(counts: dict[str, int]) -> list[tuple[str, int]]:
    """The most frequent few."""
    return sorted(counts.items(), key=lambda pair: -pair[1])[:LISTED]


def place(one: dict[str, Any]) -> str:
    """An operation with its operands and the user's line."""
    operands = f"({one['operands']})" if one["operands"] else ""
    return f"{one['operator']}{operands}" + (f"  at {one['source']}" if one["source"] else "")


def first_line(reason: str) -> str:
    """The first line of a compiler's message."""
    return reason.strip().splitlines()[0] if reason.strip() else "it gave no reason"


def time(seconds: float) -> str:
    """A time with a unit in which it is easy to read."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.2f} ms"
    return (
        f"{seconds * 1e6:.1f} us" if seconds >= 1e-6 or seconds == 0 else f"{seconds * 1e9:.0f} ns"
    )
