"""Operators that change an argument although their schema does not say so.

PyTorch's ``native_batch_norm`` is declared as a pure function and yet updates the
running statistics in place (the functionalisation pass of PyTorch singles it out for
the same reason). Recording trusts schemas, so the exceptions stand here.
"""

from __future__ import annotations

HIDDEN_WRITES: dict[str, tuple[int, ...]] = {"native_batch_norm": (3, 4)}
"""Overload -> positions of the arguments it writes when they are present and it trains.

The backend's rule returns the new values of these arguments after the schema's results,
one for each position, ``None`` for an argument that is ``None``. With ``training`` false
the values returned are those that came in.
"""
