"""What compiled graphs did in this process: the part of ``fuse.stats()`` named ``compiled``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Counts:
    """``graphs`` made, by kind; their ``calls``; of these ``captures``, recorded for replay, and
    ``by_operation``, made operation by operation, some for ``reasons`` that may last;
    ``one_size_each``: why graphs with symbolic sizes have an executable a size, and
    ``one_size_calls`` of those graphs."""

    graphs: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    captures: int = 0
    by_operation: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    one_size_each: Counter[str] = field(default_factory=Counter)
    one_size_calls: Counter[str] = field(default_factory=Counter)

    def stats(self) -> dict[str, Any]:
        """The counters as plain data."""
        return {
            "graphs": dict(self.graphs),
            "calls": self.calls,
            "captures": self.captures,
            "by_operation": self.by_operation,
            "reasons": dict(self.reasons),
            "one_size_each": dict(self.one_size_each),
            "one_size_calls": dict(self.one_size_calls),
        }

    def reset(self) -> None:
        """Set every counter to zero."""
        self.graphs.clear()
        self.reasons.clear()
        self.one_size_each.clear()
        self.one_size_calls.clear()
        self.calls = self.captures = self.by_operation = 0


COUNTS = Counts()
