"""``fuse.explain``: what was recorded, cut, planned, compiled, and run on the host, and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fuse.device import lazy
from fuse.engine.timeline import Timeline
from fuse.report.explanation import Explanation, gather
from fuse.report.statistics import stats


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Call ``fn(*args, **kwargs)`` and describe what the device did: text, data, or a page.

    The call really happens, once. Whatever was recorded before it is handed on and waited
    for first and is not part of it; what the call leaves recorded is handed on at its end.
    Every chunk is waited for, so that its time is its own: the call takes longer than it
    does unwatched where chunks would have run beside the program, and brief traces are
    recorded that would have run uncompiled. What ``fn`` raises is raised here.
    """
    core, engine = lazy.core(), lazy.engine()
    core.cut(lazy.CUTS["synchronize"])
    engine.wait()
    before, timeline = stats(), Timeline()
    engine.watch(timeline)
    core.set_tier(1)  # what runs uncompiled leaves nothing to describe
    start = time.perf_counter()
    try:
        fn(*args, **kwargs)
        core.cut(lazy.CUTS["synchronize"])
    finally:
        stop = time.perf_counter()
        engine.watch(None)
        lazy.bound_uncompiled(core, engine)
    return Explanation.of(gather(timeline, before, stats(), start, stop))
