"""What a platform of XLA's offers beside XLA's own operations; most offer nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from fuse.backends.base import Chunk
from fuse.backends.xla.calls import Call
from fuse.trace.borders import Borders
from fuse.trace.node import Node
from fuse.trace.spec import TensorSpec, View

INTEGERS: Final = frozenset(
    ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
NO_PRODUCTS: Final = {"tpu": frozenset(["int64", "uint64"])}
"""Dtypes of which a platform's compiler refuses a ``dot``. A TPU has no registers for those: its
compiler makes pairs of 32-bit integers of them."""
NO_CONVOLUTIONS: Final = NO_PRODUCTS | {"gpu": INTEGERS}
"""Dtypes of which it refuses convolutions. On a GPU these are cuDNN's, which has none of integers;
a ``dot`` that no library has is a loop of XLA's own there."""


class Attention(NamedTuple):
    """Scaled dot-product attention.

    Attributes:
        query: ``[batch, heads, L, width]``.
        key, value: ``[batch, groups, S, width]``; ``groups`` divides ``heads``.
        causal: whether query ``i`` sees keys up to ``i`` only.
        scale: what products of queries and keys are multiplied by; a 0-d array where it varies.
        bias: added to the scores, or where booleans are true what a query sees; it broadcasts to
            ``[batch, heads, L, S]``.
        heads_inside: whether the heads of a position lie beside each other in memory, as after
            ``x.view(batch, L, heads, width).transpose(1, 2)``.
        constant: asks for what the bias is in every run of the program; ``None`` where that is
            not known, or it takes more than it would save.
    """

    query: jax.Array
    key: jax.Array
    value: jax.Array
    causal: bool
    scale: float | jax.Array
    bias: jax.Array | None = None
    heads_inside: bool = False
    constant: Callable[[], np.ndarray | None] = lambda: None

    def is_grouped(self) -> bool:
        """Whether the arrays are of one dtype and of the shapes above, and none is empty."""
        query, key, value = self.query, self.key, self.value
        if not query.ndim == key.ndim == value.ndim == 4 or 0 in (*query.shape, *key.shape):
            return False
        wanted = (query.shape[0], *key.shape[1:3], query.shape[3])
        return (
            query.dtype == key.dtype == value.dtype
            and key.shape == value.shape == wanted
            and query.shape[1] % key.shape[1] == 0
        )


@dataclass(frozen=True)
class Platform:
    """Where programs run. A platform with kernels of its own is a subclass of this.

    Attributes:
        name: "cpu", "gpu" or "tpu".
    """

    name: str

    def borders(self) -> Borders:
        """What the platform has traces cut by."""
        return Borders()

    def stacks(self) -> bool:
        """Whether small tensors that are treated alike are rows of one array: see ``stacking``."""
        return True

    def start(self) -> None:
        """Make the platform's kernels ready; called before anything is compiled. Idempotent."""

    def fingerprint(self) -> dict[str, str]:
        """Labelled fields that executables depend on beside the program and XLA's version."""
        return {}

    def held_bytes(self, stored: int | None) -> int:
        """The host's memory that an executable takes of ``stored`` bytes, where that is known."""
        return stored or 0

    def give_back(self) -> None:
        """Let the system have the host's memory that is free."""

    def refuses(self, node: Node) -> str | None:
        """Why the platform's compiler cannot compile ``node``, where that is known."""
        return None

    def multiplies(self, dtype: str) -> bool:
        """Whether the platform's compiler takes a ``dot`` of arrays of ``dtype``."""
        return dtype not in NO_PRODUCTS.get(self.name, ())

    def convolves(self, dtype: str) -> bool:
        """Whether it takes a convolution of them."""
        return dtype not in NO_CONVOLUTIONS.get(self.name, ())

    def has_kernel(self, target: str, *values: jax.Array) -> bool:
        """Whether a program may call the kernel ``target`` on ``values``."""
        return False

    def call(self, target: str, results: Any, *values: jax.Array, **attributes: Any) -> Any:
        """The results of a kernel that ``has_kernel`` knows, of the shapes and dtypes ``results``.

        ``attributes`` are numbers or sequences of them; integers become 64-bit.
        """
        raise NotImplementedError(f"platform {self.name} has no kernel {target}")

    def attention(self, asked: Attention) -> tuple[jax.Array, jax.Array] | None:
        """Attention by a kernel of the platform's; ``None``: its rule writes it.

        Returns:
            The output ``[batch, heads, L, width]`` in the query's dtype, and the natural logarithm
            of the softmax denominators, float32 ``[batch, heads, L]``.
        """
        return None

    def attention_gradient(
        self, asked: Attention, grad: jax.Array, output: jax.Array, logarithm: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array] | None:
        """The gradients of query, key and value, each of its shape; ``None`` likewise.

        Args:
            asked: what was computed.
            grad: of the output.
            output, logarithm: what any way of computing it returned.
        """
        return None

    def operator(
        self,
        target: str,
        specs: Sequence[TensorSpec],
        positional: Sequence[Any],
        keyword: Mapping[str, Any],
    ) -> list[jax.Array] | None:
        """An operator's results by a kernel of the platform's; ``None``: its rule writes them.

        Args:
            target: the functional overload.
            specs: shapes and dtypes of its results.
            positional, keyword: its arguments as its rule takes them, tensors as arrays.
        """
        return None

    def calls(self, chunk: Chunk, apart: Collection[int]) -> list[Call]:
        """Nodes of ``chunk`` to be done as one call each; none at the places ``apart``."""
        return []

    def updates(self, chunk: Chunk) -> frozenset[int]:
        """The values of ``chunk`` that ``update`` is to make of the ones before them."""
        return frozenset()

    def update(
        self, base: jax.Array, view: View, value: jax.Array, offset: jax.Array | None = None
    ) -> jax.Array | None:
        """``base`` with the elements of ``view`` set to ``value``; ``None``: write it by XLA's own.

        Args:
            base: an array in row-major order, whose elements the view's strides count.
            value: an array of ``view.shape`` and the dtype of ``base``.
            offset: a 0-d int64 array that replaces ``view.offset``.
        """
        return None

    def options(self, lowered: jax.stages.Lowered) -> dict[str, str | bool] | None:
        """Compiler options for a program that ``jax.jit`` lowered; ``None``: XLA's own choice."""
        return None

    def instead(self, error: Exception) -> Mapping[str, str | bool] | None:
        """Options in place of those under which the compiler failed so; ``None``: it is refused."""
        return None
