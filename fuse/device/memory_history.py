"""The history of the device's memory, under the names that ``torch.cuda.memory`` has for it.

What it gives is what PyTorch's visualiser reads: ``torch.cuda._memory_viz`` and its page.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any, Final, Literal

from fuse.device import lazy

_BEFORE: Final = 1 << 39
"""The address of what is older than the history, as one block: under all of the history's own."""


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: Any = None,
    clear_history: bool = False,
    **others: Any,
) -> None:
    """Begin or end to record which storages are made and freed, and by which lines; starts it.

    A storage counts from the call that makes it, whether or not it has been computed.

    Args:
        enabled: "all" keeps events, "state" live storages only, ``None`` nothing more: what has
            been kept is gone.
        context: stacks of live storages ("state"), also of the events that make them ("alloc"),
            also of those that free them ("all"), or none. Some 2 us a stack.
        stacks: not read: they are Python's.
        max_entries: events, after which the oldest goes.
        device: not read: all devices'.
        clear_history: whether the events until now are forgotten.
        others: what CUDA's takes beside these is not read.

    Raises:
        ValueError: ``enabled`` or ``context`` is none of these.

    Example:
        ```python
        torch.tpu.memory._record_memory_history()
        x = torch.ones(1000, device="tpu")
        print(len(torch.tpu.memory._snapshot()["device_traces"][0]))  # 1
        torch.tpu.memory._record_memory_history(None)
        ```
    """
    if enabled not in (None, "state", "all") or context not in (None, "state", "alloc", "all"):
        raise ValueError(
            f'memory history takes enabled=None, "state" or "all" and context=None, "state", '
            f'"alloc" or "all", and not {enabled!r} and {context!r}'
        )
    lazy.initialise()
    lazy.core().keep_memory_history(
        enabled is not None,
        enabled == "all",
        context is not None,
        context in ("alloc", "all"),
        context == "all",
        max_entries,
        clear_history,
    )


def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Storages alive and the events so far, as ``torch.cuda.memory._snapshot`` gives them.

    A storage is a segment of one block, at an address of the history's own. What is older than the
    history is one block more.

    Args:
        device: not read: all devices'.
        augment_with_fx_traces: not read.
    """
    if not lazy.is_initialised():
        return {"segments": [], "device_traces": []}
    storages, events = lazy.core().memory_history()
    older = lazy.core().memory()[0] - sum(nbytes for _, nbytes, _, _ in storages)
    if older > 0:
        storages.insert(0, (_BEFORE, older, 0, []))
    traces: list[list[dict[str, Any]]] = [[] for _ in range(lazy.engine().backend.device_count())]
    for action, address, nbytes, index, microseconds, frames in events:
        event = {"action": action, "size": nbytes, "stream": 0, "time_us": microseconds}
        place = {"device_free": 0} if action == "oom" else {"addr": address}
        pool = {"segment_pool_id": (0, 0)}
        traces[index].append(event | place | pool | {"frames": frames})
    return {
        "segments": [_segment(*storage) for storage in storages],
        "device_traces": traces,
        "allocator_settings": {},
        "external_annotations": [],
    }


def _segment(address: int, nbytes: int, index: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    block = {
        "address": address,
        "size": nbytes,
        "requested_size": nbytes,
        "state": "active_allocated",
        "frames": frames,
    }
    return {
        "device": index,
        "address": address,
        "total_size": nbytes,
        "allocated_size": nbytes,
        "active_size": nbytes,
        "requested_size": nbytes,
        "stream": 0,
        "segment_type": "large" if nbytes > 1 << 20 else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": frames,
        "blocks": [block],
    }


def _dump_snapshot(
    filename: str | Path = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write ``_snapshot`` to a file that https://pytorch.org/memory_viz opens.

    Args:
        filename: is overwritten.
        augment_with_fx_traces: not read.
    """
    Path(filename).write_bytes(pickle.dumps(_snapshot()))


def memory_snapshot(mempool_id: Any = None) -> list[dict[str, Any]]:
    """The segments of ``_snapshot``: a storage each.

    Args:
        mempool_id: not read: there is one pool.
    """
    segments: list[dict[str, Any]] = _snapshot()["segments"]
    return segments
