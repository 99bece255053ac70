"""``fuse.stats()``: counters of the recorder and the engine in one dict."""

from __future__ import annotations

from typing import Any

from fuse.compile.counts import COUNTS
from fuse.device import lazy
from fuse.report.tiers import tiers


def stats() -> dict[str, Any]:
    """Counters since the start or the last reset, for the whole process.

    Keys: ``operations`` (recorded), ``known_operations`` (of these, on a known stream),
    ``traces``, ``cuts`` (reason -> count), ``chunks`` (executed),
    ``rescued_traces`` (that failed, and were run again operation by operation), ``compiles``,
    ``compile_seconds``, ``cache`` and ``cache_events``, ``host_fallbacks`` (operator ->
    count), ``uncompiled_operations`` (run by PyTorch's CPU kernels), ``known_calls``
    (nodes of the trie), ``prunes`` (how often the least recent half of them was forgotten),
    ``started_early`` (traces whose first chunks ran while they were recorded) and
    ``started_in_vain`` (those that ended otherwise, or failed: what they made was dropped),
    ``streams`` (made so far, which is no counter: threads' own, and those of the program), and
    ``copies_beside`` (from pinned memory, ``non_blocking``, made beside what went on).

    ``segments`` (tier -> count) counts what was called from one cut to the next: ``uncompiled``, or
    ``compiled``, which are the traces. ``tiers`` says what the policy of tiers knows of them since
    the start, a list of dicts, most frequent first, 20 at most: the ``operator`` that the segments
    begin with, how many ran ``uncompiled`` and ``compiled``, the ``tier`` of the next, and ``why``.
    It is empty where all are compiled: with ``FUSE_TIER=compiled``, and elsewhere than on the CPU.

    ``background`` (unless ``FUSE_TIER=compiled``) counts executables that are ``pending``,
    ``compiled`` and ``failed``, and ``uncompiled_chunks``: runs of chunks that had none yet.
    Of the compiled ones worker processes made ``workers``; ``here`` says why others were
    compiled in this process (reason -> count).

    ``compiled`` counts graphs of torch.compile: ``graphs`` (kind -> made), ``calls`` of them,
    ``captures`` (calls recorded operation by operation, to be recorded in one step from then on),
    ``by_operation`` (calls that never are, or not here) and their ``reasons``, and
    ``one_size_each``: why graphs with symbolic sizes do not run at the sizes of buckets, and
    ``one_size_calls`` (reason -> calls of such graphs).

    ``families`` counts, where memory is not the host's, traces whose sizes move: ``plans`` at the
    sizes of buckets, and ``one_size_each``: why others have an executable for each size (reason ->
    plans; it names operator and line).

    ``cache`` has one dict a tier (``memory``, and ``disk`` and ``shared`` where there are)
    with ``hits``, ``misses``, ``puts``, ``evictions``; ``bypasses`` (the tier was not asked),
    ``rejections`` (an entry must not be used) and ``failures``, each reason -> count; and for
    memory ``entries`` and ``bytes``, which are not counters. Two entries that are no
    executables are counted with them: what earlier processes found out about operations, and
    what the same command used last time (see docs/cache.md).
    ``cache_events`` counts what happened between tiers and processes: ``makes``, leases
    (``lease-held``, ``lease-waits``, ``lease-timeout``, ...), ``races``, full queues.
    """
    core, engine = lazy.core(), lazy.engine()
    counted = core.stats()
    uncompiled = counted.pop("uncompiled_segments")
    return {
        **counted,
        "segments": {"uncompiled": uncompiled, "compiled": counted["traces"]},
        "tiers": tiers(core.tiers(), engine.tier),
        **engine.stats(),
        "compiled": COUNTS.stats(),
    }


def reset_stats() -> None:
    """Set every counter to zero; what is known and cached stays."""
    lazy.core().reset_stats()
    lazy.engine().reset_stats()
    COUNTS.reset()
