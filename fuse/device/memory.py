"""``torch.tpu``'s questions about memory, with ``torch.cuda``'s names and meanings.

What counts as allocated are live storages, whether or not their values have been computed: a value
that a chunk needs only for itself never exists. Numbers are those of all devices of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fuse.device import lazy
from fuse.device.memory_history import (
    _dump_snapshot as _dump_snapshot,
    _record_memory_history as _record_memory_history,
    _snapshot as _snapshot,
    memory_snapshot as memory_snapshot,
)

_SHOWN = ("allocated_bytes", "active_bytes", "reserved_bytes", "allocation")


def memory_allocated(which: Any = None) -> int:
    """Bytes behind live storages of the device; starts nothing.

    What is recorded counts as allocated, whether or not it has been computed.

    Args:
        which: not read: the bytes are those of all devices.
    """
    return lazy.core().memory()[0] if lazy.is_initialised() else 0


def max_memory_allocated(which: Any = None) -> int:
    """The highest ``memory_allocated`` since the start or ``reset_peak_memory_stats``.

    Args:
        which: not read: the bytes are those of all devices.
    """
    return lazy.core().memory()[1] if lazy.is_initialised() else 0


def memory_reserved(which: Any = None) -> int:
    """Same as ``memory_allocated``: the backend keeps no pool that fuse sees.

    Args:
        which: not read.
    """
    return memory_allocated(which)


def max_memory_reserved(which: Any = None) -> int:
    """Same as ``max_memory_allocated``.

    Args:
        which: not read.
    """
    return max_memory_allocated(which)


def reset_peak_memory_stats(which: Any = None) -> None:
    """Start ``max_memory_allocated``, and all peaks of ``memory_stats``, from the present.

    Args:
        which: not read: they are all devices'.
    """
    if lazy.is_initialised():
        torch.accelerator.reset_peak_memory_stats()


def reset_accumulated_memory_stats(which: Any = None) -> None:
    """Start what ``memory_stats`` counts as allocated, freed and refused from 0.

    Args:
        which: not read: the counts are all devices'.
    """
    if lazy.is_initialised():
        torch.accelerator.reset_accumulated_memory_stats()


def memory_stats(which: Any = None) -> dict[str, int]:
    """Bytes and storages alive, their peaks and totals, under CUDA's names; starts nothing.

    Args:
        which: not read: the numbers are those of all devices.

    Returns:
        For each of ``allocated_bytes``, ``reserved_bytes``, ``active_bytes``, ``requested_bytes``
        and the counts ``allocation``, ``segment`` and ``active``: its ``.all.current``,
        ``.all.peak``, ``.all.allocated`` and ``.all.freed``. A storage is a segment of its own, so
        that the counts are alike, and so are the bytes. ``num_ooms`` counts errors of memory. What
        CUDA's pools have beside is 0. Empty before the device has been started.

    Example:
        ```python
        x = torch.ones(1000, device="tpu")
        print(torch.tpu.memory_stats()["allocated_bytes.all.current"] >= 4000)  # True
        ```
    """
    return dict(torch.accelerator.memory_stats()) if lazy.is_initialised() else {}


def memory_stats_as_nested_dict(which: Any = None) -> dict[str, Any]:
    """``memory_stats`` as dictionaries in dictionaries; starts nothing.

    Args:
        which: not read: the numbers are those of all devices.
    """
    return dict(torch._C._accelerator_getDeviceStats(0)) if lazy.is_initialised() else {}


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """``host_memory_stats`` as dictionaries in dictionaries; starts nothing."""
    return lazy.core().host_memory_stats() if lazy.is_initialised() else {}


def host_memory_stats() -> dict[str, int]:
    """Blocks and bytes of pinned memory, their peaks and totals, by CUDA's names; starts nothing.

    Returns:
        For each of ``allocations``, ``allocated_bytes``, ``active_requests`` and ``active_bytes``:
        its ``.current``, ``.peak``, ``.allocated`` and ``.freed``; and ``num_host_alloc`` and
        ``num_host_free``. Nothing is kept for later, so that active and allocated are alike.

    Example:
        ```python
        torch.tpu.init()
        x = torch.ones(1000).pin_memory()
        print(torch.tpu.host_memory_stats()["active_bytes.current"] >= 4000)  # True
        ```
    """
    return dict(_flat(host_memory_stats_as_nested_dict()))


def _flat(stats: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for name, found in sorted(stats.items()):
        if isinstance(found, dict):
            yield from ((f"{name}.{key}", value) for key, value in sorted(found.items()))
        else:
            yield name, found


def reset_peak_host_memory_stats() -> None:
    """Start the peaks of ``host_memory_stats`` from the present."""
    if lazy.is_initialised():
        lazy.core().reset_host_memory(True)


def reset_accumulated_host_memory_stats() -> None:
    """Start what ``host_memory_stats`` counts as allocated and freed from 0."""
    if lazy.is_initialised():
        lazy.core().reset_host_memory(False)


def memory_summary(which: Any = None, abbreviated: bool = False) -> str:
    """The main numbers of ``memory_stats`` as text, a line a number.

    Args:
        which: not read.
        abbreviated: not read: the text is short as it is.
    """
    stats = memory_stats(which)
    shown = [name for kind in _SHOWN for name in stats if name.startswith(f"{kind}.all.")]
    return "\n".join(f"{name:32s} {stats[name]:>16,d}" for name in shown)


def mem_get_info(which: Any = None) -> tuple[int, int]:
    """Bytes of a device that are free, and all that it has; starts the device.

    Where the device computes in the host's memory, free is what the system can give without
    swapping, to any process.

    Args:
        which: index, string or ``torch.device``; ``None`` is the current one.
    """
    lazy.initialise()
    free, total = torch.accelerator.get_memory_info(which)
    return free, total


def empty_cache() -> None:
    """Let go of what nobody holds: hands on the recorded trace, whose inputs it keeps, and waits.

    Raises:
        ExecutionError: as ``synchronize`` does.
    """
    if lazy.is_initialised():
        lazy.core().synchronize()
