"""Calls a function until the policy of tiers has decided on what it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from fuse.report.tiers import changes, decided

if TYPE_CHECKING:
    from fuse.device._core import Core, Tier

LOOK_SECONDS: Final = 0.1
"""Between looks at the policy: looking takes its mutex, and so some of what is measured."""
FORECAST_SECONDS: Final = 1.0
"""What is spent uncompiled in such a time says when compiling will pay."""
SEEN: Final = 20
"""Segments of a kind after which one whose stream has not come back is not expected to."""


def settle(core: Core, setting: str, call: Callable[[], object], seconds: float) -> dict[str, Any]:
    """Call until nothing that a call runs is being tried or compiled, each kind of its segments
    is measured or does not come back, or the time is over.

    Args:
        core: the native core.
        setting: how tiers are chosen; but for ``auto`` there is nothing to wait for.
        call: what is called, at least once.
        seconds: the most that this takes, but for the last call.

    Returns:
        ``calls``, ``seconds``, ``settled``, and ``why`` not: empty if it is.
    """
    start = time.perf_counter()
    calls, first = 0, _kinds(core)
    while True:
        before, until = _kinds(core), time.perf_counter() + LOOK_SECONDS
        while True:
            call()
            calls += 1
            if time.perf_counter() >= until:
                break
        after, took = _kinds(core), time.perf_counter() - start
        if setting != "auto":
            return _outcome(calls, took, seconds, [])
        ran = [kind for key, kind in after.items() if _ran(kind) > _ran(before.get(key))]
        open_ = [kind for kind in ran if not _settled(kind)]
        late = [kind for kind in open_ if _too_late(first.get(kind["kind"]), kind, took, seconds)]
        if took > seconds or len(late) == len(open_):
            return _outcome(calls, took, seconds, late or open_)
        if any(kind["entries"][1] for kind in open_):
            time.sleep(LOOK_SECONDS)  # the compiler needs the cores that calls would keep busy


def _kinds(core: Core) -> dict[int, Tier]:
    return {kind["kind"]: kind for kind in core.tiers()}


def _ran(kind: Tier | None) -> int:
    return 0 if kind is None else int(sum(kind["segments"]))


def _settled(kind: Tier) -> bool:
    if kind["tried"] or kind["entries"][1]:  # is pending
        return False
    return decided(kind) or (_ran(kind) >= SEEN and changes(kind))


def _too_late(first: Tier | None, kind: Tier, took: float, seconds: float) -> bool:
    """Whether compiling would begin to pay after the time is over, as far as can be told."""
    if took < FORECAST_SECONDS or kind["tried"] or any(kind["entries"][1:]):
        return False
    spent = (kind["spent_ns"] - (0 if first is None else first["spent_ns"])) / 1e9
    left = (kind["price_ns"] - kind["spent_ns"]) / 1e9
    return bool(spent > 0 and took + left * took / spent > seconds)


def _outcome(calls: int, took: float, seconds: float, open_: list[Tier]) -> dict[str, Any]:
    why = ""
    if open_:
        one = open_[0]
        left = (one["price_ns"] - one["spent_ns"]) / 1e9
        what = f"what begins with {one['operator']}"
        pays = f"compiling {what} would not pay within {seconds:g} s"
        why = pays if left > 0 else f"{what} is not decided after {seconds:g} s"
    return {"calls": calls, "seconds": took, "settled": not open_, "why": why}
