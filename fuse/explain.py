"""``fuse.explain``: what was recorded, cut, planned, compiled, and run on the host, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuse.device import lazy
from fuse.statistics import stats


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Call ``fn(*args, **kwargs)`` and describe what the device did, as text.

    The call really happens, once. Whatever was recorded before it is handed on first and
    is not part of the text; what the call leaves recorded is handed on at its end.
    """
    core, engine = lazy.core(), lazy.engine()
    core.cut(lazy.CUTS["synchronize"])
    before = stats()
    seen: list[tuple[str, Any]] = []
    engine.observer = seen
    engine.executables.explaining = True
    try:
        fn(*args, **kwargs)
        core.cut(lazy.CUTS["synchronize"])
    finally:
        engine.observer = None
        engine.executables.explaining = False
    return "\n".join([*_summary(before, stats()), *_traces(seen)])


def _summary(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    def grown(name: str) -> Any:
        return after[name] - before[name]

    lines = [
        f"operations  {grown('operations')} ({grown('known_operations')} on known streams)",
        f"traces      {grown('traces')}   chunks {grown('chunks')}",
        f"compiles    {grown('compiles')} in {grown('compile_seconds'):.2f} s",
    ]
    hits = {
        name: tier["hits"] - before["cache"][name]["hits"] for name, tier in after["cache"].items()
    }
    lines.append("cache       " + ", ".join(f"{count} hits in {n}" for n, count in hits.items()))
    for name in ("cuts", "host_fallbacks"):
        counts = {
            key: count - before[name].get(key, 0)
            for key, count in after[name].items()
            if count != before[name].get(key, 0)
        }
        lines.append(f"{name.replace('_', ' '):11s} {counts or 'none'}")
    return lines


def _traces(seen: list[tuple[str, Any]]) -> list[str]:
    lines: list[str] = []
    for number, (reason, runnable) in enumerate(seen):
        plan = runnable.plan
        lines += ["", f"trace {number}, cut by {reason}, run {runnable.runs} times so far"]
        lines += [f"  leaf {leaf}" for leaf in plan.trace.leaves]
        lines += [f"  {node}    # {node.source}" for node in plan.trace.nodes]
        lines += [f"  plan: {decision}" for decision in plan.decisions]
        for index, chunk in enumerate(plan.chunks):
            lines.append(
                f"  chunk {index}: {len(chunk.nodes)} operations, {len(chunk.inputs)} arrays in "
                f"({sum(i.layout.nbytes for i in chunk.inputs)} bytes), "
                f"{len(chunk.outputs)} out, {len(chunk.donated)} donated"
            )
            found = runnable.stages[index].found
            lines.append(f"    {found}")
            lines += [f"      {line}" for line in found.miss.splitlines()]
    return lines
