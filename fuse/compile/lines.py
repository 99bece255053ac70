"""Lines of the program's in a graph."""

from __future__ import annotations

import torch


def user_line_of(node: torch.fx.Node) -> str:
    """``file:line`` of the call in the user's program that a node comes from; may be empty."""
    trace = node.meta.get("stack_trace") or ""
    for text in reversed(trace.splitlines()):
        words = text.strip().split('"')
        if text.lstrip().startswith('File "') and len(words) > 2:
            line = words[2].removeprefix(", line ").partition(",")[0].strip()
            return f"{words[1]}:{line}"
    return ""
