"""In which tier segments run, and why: the policy's figures in words.

A segment is what a stream calls from one cut to the next. It runs ``uncompiled``, on PyTorch's CPU
kernels, or ``compiled``: recorded, fused, and run by XLA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fuse.device._core import Tier

LISTED: Final = 20
"""Kinds of segments that ``fuse.stats()`` names."""
FEW: Final = 3
"""Segments of a kind after which its number alone says why it is not compiled."""
RETURNS: Final = 2
"""Times in a row that a stream comes by again before the policy records it."""


def tiers(kinds: list[Tier], setting: str) -> list[dict[str, Any]]:
    """What ``fuse.stats()["tiers"]`` is, of what the core's ``tiers`` returns.

    Args:
        kinds: a dictionary a kind of segments.
        setting: how tiers are chosen: auto, compiled or uncompiled.
    """
    if setting == "compiled":
        return []
    often = sorted(kinds, key=lambda kind: -sum(kind["segments"]))
    return [
        {
            "operator": kind["operator"],
            "uncompiled": kind["segments"][0],
            "compiled": kind["segments"][1],
            "tier": tier(kind, setting),
            "why": why(kind, setting),
        }
        for kind in often[:LISTED]
    ]


def tier(kind: Tier, setting: str) -> str:
    """Where the kind's next segment runs, but for trials: uncompiled or compiled."""
    if setting != "auto":
        return setting
    return kind["tier"]


def why(kind: Tier, setting: str) -> str:
    """The tier and the reason for it, in one sentence."""
    here = tier(kind, setting)
    if setting != "auto":
        return f"{here}: FUSE_TIER={setting}"
    uncompiled, compiled = (milliseconds(time) for time in kind["measured_ns"])
    if here == "compiled":
        return f"compiled: {compiled} against {uncompiled} uncompiled"
    if kind["trials"]:
        return f"uncompiled: {uncompiled} a round measured against {compiled} compiled"
    return f"uncompiled: {_undecided(kind)}"


def _undecided(kind: Tier) -> str:
    _, pending, ready = kind["entries"]
    times = sum(kind["segments"])
    seen = f"seen {times} time{'s' if times > 1 else ''}"
    if kind["tried"]:
        return f"{seen}, is being measured against compiled"
    if pending:
        return f"{seen}, is being compiled"
    if times <= FEW:
        return seen
    if ready and kind["returns"]:
        return f"{seen}, its executables are there to be measured"
    if changes(kind):
        return "what follows it keeps changing"
    spent, price = kind["spent_ns"] / 1e9, kind["price_ns"] / 1e9
    if spent < price:
        return f"{spent:.1f} s spent of {price:.1f} s before compiling pays"
    return f"{seen}, compiling pays, and waits for its share of the time"


def changes(kind: Tier) -> bool:
    """Whether what follows the segment's first call differs from time to time."""
    return kind["returning"] < RETURNS or not kind["returns"]


def decided(kind: Tier) -> bool:
    """Whether the policy has measured the kind."""
    return bool(kind["trials"])


def milliseconds(nanoseconds: int) -> str:
    """A time of the policy's, in ms, or in us where it is short."""
    return f"{nanoseconds / 1e6:.2f} ms" if nanoseconds >= 1e5 else f"{nanoseconds / 1e3:.0f} us"
