"""What a target's compiler said of a call or a program, gathered as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from fuse.backends.base import Chunk
from fuse.backends.estimates import Estimate, Machine
from fuse.engine.executables import first_line
from fuse.engine.targeted import Planned, Targeted
from fuse.trace.functional import qualified_name
from fuse.trace.node import Node

NOTE: Final = (
    "Every figure is an estimate of the target's compiler or is computed from one; no {kind} ran."
)
ROOFLINE: Final = (
    "Every time is a bound from below, of what was compiled and published peaks; no {kind} ran."
)
LAUNCH_SECONDS: Final = 10e-6
"""What calling an executable takes here (``backends/xla/executable.py``): the host's part of a
launch; how long a device takes to begin is not published."""
ARRAY_SECONDS: Final = 0.5e-6
"""What each array that goes in or out adds to it."""
COMPILER: Final = "the compiler's own"


def gather(targeted: Targeted, runs: Sequence[int]) -> dict[str, Any]:
    """What ``TargetReport.to_dict`` returns, without advice; waits for the compiler.

    ``runs`` are the numbers of the plans that the call ran, in order.
    """
    machine = targeted.target.machine
    times = Counter(runs)
    plans = [targeted.plans[number] for number in times]
    targeted.submit_all(plans)
    found: dict[str, dict[str, Any]] = {}
    for planned in plans:
        for chunk in planned.chunks:
            estimate = targeted.estimate(chunk)
            digest = targeted.digest(chunk)
            if digest not in found:
                found[digest] = _chunk(len(found), chunk, estimate, machine)
            found[digest]["runs"] += times[planned.number]
    chunks = list(found.values())
    counts = machine.counts_cycles
    peak = max((_peak(targeted, planned) for planned in plans), default=0)
    return {
        "target": targeted.target.name,
        "model": "cycles" if counts else "roofline",
        "note": (NOTE if counts else ROOFLINE).format(kind=targeted.target.kind),
        "compiler": targeted.target.describe(),
        "machine": published(machine),
        "cycles": sum(chunk["cycles"] * chunk["runs"] for chunk in chunks) if counts else None,
        "seconds": sum(chunk["seconds"] * chunk["runs"] for chunk in chunks),
        "kernels": sum(chunk["kernels"] * chunk["runs"] for chunk in chunks),
        "launches": sum(chunk["runs"] for chunk in chunks),
        "launch_seconds": sum(chunk["launch_seconds"] * chunk["runs"] for chunk in chunks),
        "peak_bytes": peak,
        "fits": peak <= machine.memory,
        "cuts": dict(_cuts(targeted, runs)),
        "failures": failures(targeted, plans),
        "host_calls": [
            {**_operation(call.node), "reason": call.reason}
            for call in targeted.host_calls.values()
        ],
        "chunks": chunks,
        "advice": [],
    }


def failures(targeted: Targeted, plans: Sequence[Planned]) -> list[dict[str, Any]]:
    """Every operation of ``plans``, which have been submitted, that the compiler refuses, once."""
    found: dict[str, dict[str, Any]] = {}
    for planned in plans:
        for chunk in planned.chunks:
            estimate = targeted.estimate(chunk)
            if estimate.error:
                for failure in failures_of(targeted, chunk, estimate):
                    found[f"{failure['operator']}{failure['operands']}"] = failure
    return list(found.values())


def published(machine: Machine) -> dict[str, Any]:
    """A device's peaks as plain data."""
    return {
        "name": machine.name,
        "flops": machine.flops,
        "bandwidth": machine.bandwidth,
        "memory": machine.memory,
        "clock": machine.clock or None,
        "peaks": dict(machine.peaks),
        "source": machine.source,
    }


def _cuts(targeted: Targeted, runs: Sequence[int]) -> Counter[str]:
    """Why the traces of the call were cut; a plan's own counts are of the whole program."""
    found: Counter[str] = Counter()
    for number in runs:
        found[targeted.plans[number].cuts.most_common(1)[0][0]] += 1
    return found


def _operation(node: Node) -> dict[str, Any]:
    operands = ", ".join(node.describe_operands())
    return {"operator": qualified_name(node.op), "operands": operands, "source": node.source}


def failures_of(targeted: Targeted, chunk: Chunk, estimate: Estimate) -> list[dict[str, Any]]:
    """The operations that the compiler refuses; where none is refused alone, the chunk."""
    found = [
        {**_operation(node), "reason": answer.error, "kind": answer.kind}
        for node, answer in targeted.culprits(chunk)
    ]
    if found:
        return found
    whole = {
        "operator": f"a chunk of {len(chunk.nodes)} operations",
        "operands": ", ".join(str(leaf.layout) for leaf in chunk.inputs),
        "source": first_line(chunk).removeprefix(" from "),
    }
    return [{**whole, "reason": estimate.error, "kind": estimate.kind}]


def _chunk(number: int, chunk: Chunk, estimate: Estimate, machine: Machine) -> dict[str, Any]:
    compute, moved = _bounds(estimate, machine)
    launch = LAUNCH_SECONDS + ARRAY_SECONDS * (len(chunk.inputs) + len(chunk.outputs))
    seconds = {"compute": compute, "memory": moved / machine.bandwidth, "launch": launch}
    ticks = machine.total(estimate)
    sources = dict.fromkeys(node.source for node in chunk.nodes if node.source)
    return {
        "number": number,
        "runs": 0,
        "operations": [node.op for node in chunk.nodes],
        "lines": [line for line in sources if not line.startswith("backward (")],
        "label": f"{len(chunk.nodes)} operations{first_line(chunk)}",
        "error": estimate.error,
        "cycles": ticks if machine.counts_cycles else None,
        "seconds": machine.seconds(ticks),
        "kernels": sum(cost.times for cost in estimate.costs) + sum(estimate.unestimated.values()),
        "launch_seconds": launch,
        "bound": max(seconds, key=seconds.__getitem__),
        "bound_seconds": seconds,
        "flops": estimate.flops,
        "bytes_moved": moved,
        "bytes_in": sum(leaf.layout.nbytes for leaf in chunk.inputs),
        "bytes_out": sum(one.nbytes for one in estimate.results),
        "temporary_bytes": estimate.temporary_bytes,
        "peak_bytes": estimate.peak_bytes,
        "padding": estimate.padding,
        "padded": _padded(estimate),
        "costs": _costs(chunk, estimate, machine),
        "kernel_cycles": estimate.kernel_cycles,
        "unestimated": dict(estimate.unestimated),
        "unknown_loops": estimate.unknown_loops,
        "compile_seconds": estimate.seconds,
    }


def _bounds(estimate: Estimate, machine: Machine) -> tuple[float, int]:
    """Seconds of a chunk's arithmetic at its peaks, and the bytes that it moves.

    Of a program whose instructions' bytes are known, these; of another, its arrays in and out, and
    temporaries twice.
    """
    if not machine.counts_cycles:
        compute = sum(machine.bounds(cost)[0] for cost in estimate.costs)
        return compute, sum(cost.nbytes for cost in estimate.costs)
    arrays = (*estimate.arguments, *estimate.results)
    moved = sum(one.padded for one in arrays) + 2 * estimate.temporary_bytes
    return estimate.flops / machine.flops, moved


def _padded(estimate: Estimate) -> list[dict[str, Any]]:
    """Arrays in and out of which padding takes most, most first."""
    arrays = dict.fromkeys((*estimate.arguments, *estimate.results))
    worst = sorted(arrays, key=lambda one: one.nbytes - one.padded)
    return [
        {"text": one.text, "bytes": one.nbytes, "padded": one.padded}
        for one in worst[:5]
        if one.padded > one.nbytes
    ]


def _costs(chunk: Chunk, estimate: Estimate, machine: Machine) -> list[dict[str, Any]]:
    """What each operation costs, dearest first; what the compiler adds has no line."""
    by_node: Counter[int | None] = Counter()
    for cost in estimate.costs:
        place = cost.node if cost.node is not None else next(iter(cost.nodes), None)
        known = place is not None and place < len(chunk.nodes)
        by_node[place if known else None] += machine.ticks(cost)
    found = []
    for place, ticks in by_node.most_common():
        node = None if place is None else chunk.nodes[place]
        found.append(
            {
                "operator": COMPILER if node is None else qualified_name(node.op),
                "operands": "" if node is None else ", ".join(node.describe_operands()),
                "source": "" if node is None else node.source,
                "node": place,
                "cycles": ticks if machine.counts_cycles else None,
                "seconds": machine.seconds(ticks),
            }
        )
    return found


def _peak(targeted: Targeted, planned: Planned) -> int:
    """The most memory while a plan runs: a chunk's own, and what lives beside it."""
    layouts = planned.plan.trace.layouts()
    alive = {leaf.value for leaf in planned.plan.trace.leaves}
    last: dict[int, int] = {}
    for index, piece in enumerate(planned.plan.chunks):
        last |= dict.fromkeys((leaf.value for leaf in piece.inputs), index)
    peak = 0
    pieces = zip(planned.plan.chunks, planned.chunks, strict=True)
    for index, (piece, chunk) in enumerate(pieces):
        inside = {leaf.value for leaf in piece.inputs}
        beside = sum(layouts[value].nbytes for value in alive - inside)
        peak = max(peak, beside + targeted.estimate(chunk).peak_bytes)
        donated = {piece.inputs[at].value for at in piece.donated}
        ended = {
            value
            for value in inside
            if last[value] == index
            and value not in planned.plan.live
            and value not in {leaf.value for leaf in planned.plan.trace.leaves}
        }
        alive = (alive | set(piece.outputs)) - donated - ended
    return peak
