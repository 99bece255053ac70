"""The segments of an explained call: in which tier each ran, and in which it would, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuse import config
from fuse.report.tiers import decided, why

if TYPE_CHECKING:
    from fuse.device._core import Ran, Tier
    from fuse.engine.engine import Engine
    from fuse.engine.runnable import Runnable

WAITS = "uncompiled: its executables are being made"


def segments(
    ran: list[Ran],
    kinds: list[Tier],
    traces: list[tuple[str, Runnable]],
    engine: Engine,
    recorded: bool,
) -> list[dict[str, Any]]:
    """What ``Explanation.to_dict`` has of them.

    Args:
        ran: those of the call, in order.
        kinds: what the core's ``tiers`` returns after it.
        traces: ``(reason, plan)`` of those that were recorded, in order.
        engine: the engine, for what is set.
        recorded: whether all of them were recorded to be explained.
    """
    known = {kind["kind"]: kind for kind in kinds}
    found, number = [], 0
    for kind, calls, nanoseconds, plan in ran:
        trace = None
        if plan is not None:
            while number < len(traces) and traces[number][1] is not plan:
                number += 1
            trace, number = number, number + 1
        found.append(
            {
                "operator": known[kind]["operator"] if kind in known else _first(plan),
                "calls": calls,
                "tier": "uncompiled" if plan is None else "compiled",
                "seconds": nanoseconds / 1e9 if nanoseconds and plan is None else None,
                "trace": trace,
                "why": _why(known.get(kind), engine, recorded) if kind or plan else WAITS,
            }
        )
    return found


def _first(plan: Runnable | None) -> str:
    return str(plan.plan.trace.nodes[0].op) if plan is not None else "a compiled graph"


def _why(kind: Tier | None, engine: Engine, recorded: bool) -> str:
    if kind is None:
        return f"compiled: {_never_asked(engine)}"
    reason = why(kind, engine.tier)
    if not recorded:
        return reason
    so_far = not decided(kind) and engine.tier == "auto"
    tier, _, rest = reason.partition(": ")
    return f"by default it runs {tier}{' so far' if so_far else ''}: {rest}"


def _never_asked(engine: Engine) -> str:
    """Why the policy of tiers has no say in a segment."""
    if engine.mode != "fused":
        return f"the mode is {engine.mode}"
    if not engine.backend.shares_host_memory():
        return "the device's memory is not the host's"
    if config.tier() == "compiled":
        return "FUSE_TIER=compiled"
    if engine.tier == "compiled":
        return "the settings ask for what is compiled"
    return "a graph of torch.compile, or a call of the device's own"
