"""A graph with symbolic sizes that has one executable for each of them, and says why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from fuse import config
from fuse.compile.counts import COUNTS
from fuse.compile.lines import user_line_of

Call = Callable[[list[Any]], list[Any]]


class OneSizeEach:
    """Calls a graph at its true sizes; every call is counted under the ``reason``."""

    def __init__(self, call: Call, module: torch.fx.GraphModule, reason: str) -> None:
        self._call, self._reason = call, reason
        COUNTS.one_size_each[reason] += 1
        if "recompiles" in config.explain():
            sys.stderr.write(
                f"fuse: a compiled graph{_first_line(module)} has symbolic sizes and one "
                f"executable for each of them: {reason}\n"
            )

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """The results on these arguments, which the list holds no longer afterwards."""
        COUNTS.one_size_calls[self._reason] += 1
        return self._call(arguments)


def _first_line(module: torch.fx.GraphModule) -> str:
    lines = (user_line_of(node) for node in module.graph.nodes if node.op == "call_function")
    found = next(filter(None, lines), "")
    return f" from {found}" if found else ""
