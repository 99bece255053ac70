"""XLA's GPU platform: how it is told to compile, and what its compiler cannot do."""

from __future__ import annotations

import jax

from fuse.backends.xla.platform import Platform


class GpuPlatform(Platform):
    """Final. What it has beside XLA's own operations are the libraries that XLA calls."""

    def __init__(self) -> None:
        super().__init__("gpu")

    def options(self, lowered: jax.stages.Lowered) -> dict[str, str | bool] | None:
        """Without subnormal numbers, which it keeps else: see ``fuse.backends.subnormals``."""
        return {"xla_gpu_ftz": True}
