"""XLA's GPU platform: how it is told to compile, and what its compiler cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import jax

from fuse.backends.xla.gpu import attention
from fuse.backends.xla.platform import Attention, Platform

FLUSHED: Final = "Illegal modifier '.ftz'"
"""What the assembler says of an instruction that cannot flush subnormal numbers."""


class GpuPlatform(Platform):
    """Final. What it has beside XLA's own operations are the libraries that XLA calls."""

    def __init__(self, capability: tuple[int, int] = (0, 0)) -> None:
        """``capability``: the compute capability of NVIDIA's; another vendor's GPU has none."""
        super().__init__("gpu")
        self.capability = capability

    def attention(self, asked: Attention) -> tuple[jax.Array, jax.Array] | None:  # noqa: D102
        return attention.attend(asked) if attention.covered(asked, self.capability) else None

    def attention_gradient(  # noqa: D102
        self, asked: Attention, grad: jax.Array, output: jax.Array, logarithm: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array] | None:
        if not attention.covered(asked, self.capability):
            return None
        return attention.attend_gradient(asked, grad, output, logarithm)

    def options(self, lowered: jax.stages.Lowered) -> dict[str, str | bool] | None:
        """Without subnormal numbers, which it keeps else: see ``fuse.backends.subnormals``."""
        return {"xla_gpu_ftz": True}

    def instead(self, error: Exception) -> Mapping[str, str | bool] | None:
        """With subnormal numbers, where the compiler cannot do without.

        From the H100 on, jaxlib 0.10.2 makes comparisons of bfloat16 that flush them, an
        instruction that there is not.
        """
        return {"xla_gpu_ftz": False} if FLUSHED in str(error) else None
