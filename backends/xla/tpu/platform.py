"""XLA's TPU platform: what its compiler cannot do, and what its executables depend on."""

from __future__ import annotations

import os
from typing import Final

import jax

from fuse.backends.xla.platform import Attention, Platform
from fuse.backends.xla.tpu import attention
from fuse.trace.borders import Borders
from fuse.trace.node import Node

LIBTPU_ARGUMENTS: Final = "LIBTPU_INIT_ARGS"
"""The environment variable in which libtpu takes options of its compiler."""

WHOLE: Final = 1500
"""Operations up to which a trace is one executable: at a border arrays are laid out anew, and what
could be fused across it goes through memory."""
DENSE: Final = 8
"""What a product of a megabyte counts as among these: it takes the compiler 1 s or more."""
WORTH: Final = 64 << 20
"""Bytes that take as long to move (80 us on a v5e) as a call of a hundred arrays takes the host."""


class TpuPlatform(Platform):
    """Final. All is written in XLA's terms, but for long attention, which JAX has kernels of."""

    def __init__(self) -> None:
        super().__init__("tpu")

    def fingerprint(self) -> dict[str, str]:  # noqa: D102
        return {"libtpu arguments": os.environ.get(LIBTPU_ARGUMENTS, "")}

    def borders(self) -> Borders:  # noqa: D102
        return Borders(WHOLE, WORTH, DENSE)

    def stacks(self) -> bool:
        """Not: laying a gradient as a row takes a loop of its own, of 1,825 cycles at least."""
        return False

    def refuses(self, node: Node) -> str | None:  # noqa: D102
        if "complex128" in node.dtypes():
            return "the TPU's compiler has no complex128"
        return None

    def attention(self, asked: Attention) -> tuple[jax.Array, jax.Array] | None:  # noqa: D102
        return attention.attend(asked)

    def attention_gradient(  # noqa: D102
        self, asked: Attention, grad: jax.Array, output: jax.Array, logarithm: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array] | None:
        return attention.attend_gradient(asked, grad, output, logarithm)
