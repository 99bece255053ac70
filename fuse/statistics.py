"""``fuse.stats()``: counters of the recorder and the engine in one dict."""

from __future__ import annotations

from typing import Any

from fuse.device import lazy


def stats() -> dict[str, Any]:
    """Counters since the start or the last reset, for the whole process.

    Keys: ``operations`` (recorded), ``known_operations`` (of these, on a known stream),
    ``traces``, ``cuts`` (reason -> count), ``chunks`` (executed), ``compiles``,
    ``compile_seconds``, ``cache`` (tier -> counters with ``hits`` and ``misses``),
    ``host_fallbacks`` (operator -> count), ``shape_caps``
    (operator -> places whose shapes keep changing), ``uncompiled_operations`` (run there), ``known_calls`` (nodes of the trie).
    """
    return {**lazy.core().stats(), **lazy.engine().stats()}


def reset_stats() -> None:
    """Set every counter to zero; what is known and cached stays."""
    lazy.core().reset_stats()
    lazy.engine().reset_stats()
