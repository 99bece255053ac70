"""The thirty loops by name."""

from __future__ import annotations

from bench.everyday import decisions, objectives, training

LOOPS = {loop.name: loop for part in (training, objectives, decisions) for loop in part.LOOPS}
