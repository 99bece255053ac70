"""What each line of the user's source took: chunks' times, shared among their operations."""

from __future__ import annotations

import linecache
import os
from typing import Any

from fuse.engine.timeline import Timeline
from fuse.trace.node import Node, Operand, Output, Write
from fuse.trace.spec import ITEMSIZE


def source_lines(timeline: Timeline) -> list[dict[str, Any]]:
    """The lines of a call, longest first.

    A chunk's time is shared among its operations by the bytes that they read and write: inside an
    executable nothing says what took how long.
    """
    found: dict[str, dict[str, Any]] = {}
    for number, (_, runnable) in enumerate(timeline.traces):
        ran = {
            event.chunk: event.stop - event.start
            for event in timeline.events
            if event.kind == "executing" and event.trace == number
        }
        for index, chunk in enumerate(runnable.plan.chunks):
            sizes = [touched(node) + 1 for node in chunk.nodes]
            for node, size in zip(chunk.nodes, sizes, strict=True):
                line = found.setdefault(
                    node.source,
                    {"source": node.source, "seconds": 0.0, "operations": 0, "operators": []},
                )
                line["seconds"] += ran.get(index, 0.0) * size / sum(sizes)
                line["operations"] += 1
                if node.op not in line["operators"]:
                    line["operators"].append(node.op)
    return sorted(found.values(), key=lambda line: -line["seconds"])


def touched(node: Node) -> int:
    """The bytes that an operation reads and writes."""
    tensors: tuple[Operand | Output | Write, ...] = (*node.operands, *node.outputs, *node.writes)
    return sum(one.view.numel * ITEMSIZE[one.view.dtype] for one in tensors)


def short(source: str) -> str:
    """``file:line`` by the shortest path that finds it from here."""
    path, colon, line = source.rpartition(":")
    if not line.isdecimal() or not os.path.isabs(path):
        return source or "(no line of yours)"
    near = os.path.relpath(path)
    return f"{os.path.basename(path) if near.startswith('..') else near}{colon}{line}"


def code(source: str) -> str:
    """The text of the line, empty where there is none to read."""
    path, _, line = source.rpartition(":")
    return linecache.getline(path, int(line)).strip() if line.isdecimal() else ""
