"""Calls that run on the host, and why: counted, and said once."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import final

from fuse import config
from fuse.errors import HostFallbackError, describe, warn_or_print
from fuse.trace.functional import qualified_name
from fuse.trace.node import Node
from fuse.trace.source import user_line


class HostFallbackWarning(UserWarning):
    """An operator ran on the host: right, but not on the device."""


@final
class HostCalls:
    """What the native core reports of them.

    Attributes:
        fallbacks: operator -> calls that the backend could not run.
        said: operators and lines that a warning has named.
    """

    def __init__(self, backend: str) -> None:
        """``backend`` is the name of the backend that the reasons are of."""
        self.fallbacks: Counter[str] = Counter()
        self.said: set[str] = set()
        self._backend = backend
        self._reasons: dict[str, str] = {}

    def refuse(self, name: str, reason: str) -> None:
        """Remember why the backend cannot run an operator."""
        self._reasons[name] = reason

    def switch(self, backend: str) -> None:
        """Another backend has other reasons."""
        self._backend = backend
        self._reasons.clear()

    def reset(self) -> None:
        """Set the counters to zero; what was said is not said again."""
        self.fallbacks = Counter()

    def host_fallback(self, name: str, why: str) -> None:
        """Count an operator that runs on the host; warn once, or refuse."""
        reason = why or self._reasons.get(name, "its result depends on data")
        text = self._count(name, reason, user_line())
        if text:
            warnings.warn(text, HostFallbackWarning, stacklevel=2)

    def at_a_cut(self, node: Node, reason: str) -> None:
        """The same for one that was recorded: the line is the call's."""
        text = self._count(node.op, reason, node.source)
        if text:
            warn_or_print(text, HostFallbackWarning, stacklevel=2)

    def _count(self, name: str, reason: str, line: str) -> str:
        """What is to be warned of, if anything."""
        policy = config.host_fallback()
        if policy == "error":
            raise HostFallbackError(
                describe(
                    f"the backend {self._backend!r} cannot run this: {reason}",
                    operator=qualified_name(name),
                    source=line,
                    hint="unset FUSE_HOST_FALLBACK=error to run it on the host",
                )
            )
        self.fallbacks[name] += 1
        if policy != "warn" or name in self.said:
            return ""
        self.said.add(name)
        place = line or "an unknown line"
        return f"{qualified_name(name)} runs on the host ({reason}); first at {place}"
