"""How XLA compiles a program for this machine's CPU."""

from __future__ import annotations

from typing import Final

import jax

WIDE: Final[dict[str, str | bool]] = {"xla_cpu_prefer_vector_width": "512"}
"""Elementwise loops take 0.65 to 0.75 of the time that they take with XLA's 256 bits, on CPUs that
have vectors of 512; others use what they have."""
_WRONG_WHEN_WIDE: Final = ("atan", "complex<")
"""XLA's `atan` of 16 numbers at once gives wrong values (jaxlib 0.10.2). It is also what becomes of
`atan2(x, 1)`, and complex functions contain the latter without naming it."""


def cpu_options(lowered: jax.stages.Lowered) -> dict[str, str | bool] | None:
    """Options for a program that `jax.jit` has lowered; ``None`` for XLA's own choice."""
    text = lowered.as_text()
    return None if any(name in text for name in _WRONG_WHEN_WIDE) else dict(WIDE)


def version() -> str:
    """Changes with what `cpu_options` chooses: executables of other options are others."""
    return f"{sorted(WIDE.items())} but for {_WRONG_WHEN_WIDE}"
