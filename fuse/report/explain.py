"""``fuse.explain``: what was recorded, cut, planned, compiled, and run on the host, and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from fuse.device import lazy
from fuse.engine.timeline import Timeline
from fuse.report.explanation import Explanation, gather
from fuse.report.segments import segments
from fuse.report.statistics import stats
from fuse.report.steady import settle

NOBODY, RECORDED, AS_IT_IS = range(3)
"""Who looks on, as the core numbers it."""
SECONDS: Final = 30.0


def explain(
    fn: Callable[..., Any],
    *args: Any,
    full: bool = False,
    steady: bool = False,
    seconds: float = SECONDS,
    **kwargs: Any,
) -> Explanation:
    """Call ``fn(*args, **kwargs)`` and describe what the device did: text, data, or a page.

    The call really happens, once. Whatever was recorded before it is handed on and waited
    for first and is not part of it; what the call leaves recorded is handed on at its end.
    All of it is recorded and compiled, also what would run uncompiled by default, which is said
    with the reason. Executables are waited for, and so is every chunk, that its time is its own:
    the call takes longer than it does unwatched. What ``fn`` raises is raised here.

    Args:
        fn: what is called.
        args: positional arguments of ``fn``.
        full: whether the text has every operation and every decision of the planner, not the
            summary alone. The data and the page have them in any case.
        steady: call ``fn`` until it is decided by measuring which of its segments run compiled,
            and describe the call after that, in the tiers that it then runs in.
        seconds: the most that ``steady`` takes.
        kwargs: named arguments of ``fn``, but for the names above.

    Returns:
        A ``str`` with ``to_dict``, ``to_html`` and ``save``. What ``fn`` returns is computed, and
        dropped.

    Example:
        ```python
        x = torch.ones(2, 3, device="tpu")
        report = fuse.explain(lambda: torch.relu(x * 2).sum().item())
        print("operations" in report)  # True
        print(report.to_dict()["counts"]["chunks"])  # 1
        report.save("step.html")
        ```
    """
    core, engine = lazy.core(), lazy.engine()
    settled = None
    if steady:
        settled = settle(core, engine.tier, lambda: fn(*args, **kwargs), seconds)
    core.cut("synchronize")
    engine.wait()
    before, timeline = stats(), Timeline()
    engine.watch(timeline, waits=True)
    core.watch(AS_IT_IS if steady else RECORDED)
    start = time.perf_counter()
    try:
        made = fn(*args, **kwargs)  # alive at the cut: what nobody holds is not computed
        core.cut("synchronize")
        del made
    finally:
        stop = time.perf_counter()
        ran = core.watch(NOBODY)
        engine.watch(None)
    data = gather(timeline, before, stats(), start, stop)
    data["steady"] = settled
    data["segments"] = segments(ran, core.tiers(), timeline.traces, engine, not steady)
    return Explanation.of(data, full)
