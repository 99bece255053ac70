"""A sample by a seed, of which a larger one is an extension."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def sample(names: Iterable[str], count: int, seed: int) -> list[str]:
    """``count`` of the names, all if 0; a larger count has those of a smaller one."""

    def drawn(name: str) -> bytes:
        return hashlib.sha256(f"{seed}/{name}".encode()).digest()

    chosen = sorted(names, key=drawn)
    return sorted(chosen[:count] if count else chosen)
