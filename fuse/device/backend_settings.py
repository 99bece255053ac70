"""``torch.backends.tpu``: what PyTorch's programs ask and set of a backend; starts nothing.

Names and meanings follow ``torch.backends.cuda`` and ``torch.backends.mps``.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterator

from fuse.backends import precision


def is_built() -> bool:
    """Whether this installation has the device: yes."""
    return True


def is_available() -> bool:
    """Whether there is a device to use: always, for XLA on the CPU needs nothing else."""
    return True


def version() -> str:
    """The version of jaxlib, which XLA comes in."""
    return importlib.metadata.version("jaxlib")


class _Products:
    """Products of matrices, convolutions included."""

    @property
    def fp32_precision(self) -> precision.Own:
        """How exact those of float32 are where the platform rounds operands; not on the CPU's.

        ``ieee`` is float32, ``tf32`` is TF32 on a GPU and three products of bfloat16 on a TPU,
        ``bf16`` one. ``none``, as it starts, follows ``torch.backends.fp32_precision`` and
        ``torch.set_float32_matmul_precision``. Setting anything else raises ``ValueError``.
        """
        return precision.own()

    @fp32_precision.setter
    def fp32_precision(self, setting: precision.Own) -> None:
        precision.set_own(setting)


matmul = _Products()


@contextlib.contextmanager
def flags(fp32_precision: precision.Own = "none") -> Iterator[None]:
    """Context manager: ``matmul.fp32_precision`` for a block, in the whole process.

    Args:
        fp32_precision: ``ieee``, ``tf32``, ``bf16``, or ``none`` to follow PyTorch's.

    Raises:
        ValueError: on entering, where it is none of these.

    Example:
        ```python
        x = torch.ones(2, 2, device="tpu")
        with torch.backends.tpu.flags(fp32_precision="bf16"):
            print((x @ x).sum().item())  # 8.0
        ```
    """
    before = precision.own()
    precision.set_own(fp32_precision)
    try:
        yield
    finally:
        precision.set_own(before)
