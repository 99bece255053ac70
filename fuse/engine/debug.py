"""What Debug Eager checks: indices and other data before an operation runs, results after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

from fuse.backends.base import Backend
from fuse.engine.arrays import plain
from fuse.engine.data_checks import INDEXING, PROBABILITIES
from fuse.engine.failures import failure
from fuse.engine.uncompiled import Kernel
from fuse.errors import NonFiniteError, describe
from fuse.trace.evaluate import HostScalars
from fuse.trace.functional import qualified_name
from fuse.trace.node import Node, Trace

REFUSING = frozenset(
    {
        *INDEXING,
        *PROBABILITIES,
        "_linalg_svd",
        "bernoulli_.Tensor",
        "embedding_renorm",
        "_unsafe_index.Tensor",
        "_unsafe_index_put",
        "linalg_lu_solve",
        "lu_unpack",
        "masked_scatter",
        "max_unpool2d",
        "max_unpool3d",
        "multilabel_margin_loss_forward",
        "normal.Tensor_Tensor",
        "normal.Tensor_float",
        "normal.float_Tensor",
        "searchsorted.Scalar",
        "searchsorted.Tensor",
    }
)
"""Operators whose CPU kernels look at data and raise: most read or write where an index tensor
says, where XLA clamps; others take probabilities, pivots or matrices without NaN alone."""

DIVIDING = frozenset(
    {
        "div.Scalar_mode",
        "div.Tensor_mode",
        "floor_divide",
        "floor_divide.Scalar",
        "fmod.Scalar",
        "fmod.Tensor",
        "remainder.Scalar",
        "remainder.Scalar_Tensor",
        "remainder.Tensor",
    }
)
"""Operators whose CPU kernels raise for an integer division by zero."""


def check_indices(trace: Trace, arrays: list[np.ndarray], scalars: bytes) -> None:
    """Raise what PyTorch's CPU kernel raises for an index out of range and other bad data.

    Operators that refuse data are run on the host first, on copies: whatever is wrong, the error
    is exactly the CPU's. ``trace`` holds one operation, as in Debug Eager.
    """
    node = trace.nodes[-1]
    if node.target not in REFUSING and not _divides_integers(node):
        return
    pairs = zip(trace.leaves, arrays, strict=True)
    kernel = Kernel(node, {leaf.value: np.array(a) for leaf, a in pairs}, HostScalars(scalars))
    with torch.random.fork_rng(devices=[]):  # the CPU's generator is not the device's to use
        kernel.compute(*kernel.bound())


def _divides_integers(node: Node) -> bool:
    results = [output.view for output in node.outputs] + [write.view for write in node.writes]
    return node.target in DIVIDING and all("int" in view.dtype for view in results)


def check_finite(node: Node, arrays: list[np.ndarray]) -> None:
    """Raise ``NonFiniteError`` at the first result that holds an infinity or a NaN."""
    for array in arrays:
        floating = array.dtype.kind in "fc" or array.dtype in _SMALL_FLOATS
        if floating and not np.isfinite(array.astype(np.complex128)).all():
            bad = int(np.size(array) - np.isfinite(array.astype(np.complex128)).sum())
            raise NonFiniteError(
                describe(
                    f"the first non-finite result: {bad} of {np.size(array)} elements",
                    operator=qualified_name(node.op),
                    operands=node.describe_operands(),
                    source=node.source,
                    hint="look at the operands of this line; leave check='nan' to go on",
                )
            )


_SMALL_FLOATS = (np.dtype(ml_dtypes.bfloat16),)


def finish(
    backend: Backend,
    node: Node,
    results: list[Any],
    check: str | None,
    read: Callable[[Any], np.ndarray],
) -> None:
    """Wait for what ``node`` makes, and look at what came out, as ``read`` copies it."""
    try:
        backend.wait(list(map(plain, results)))
    except Exception as error:
        text = describe(
            f"the operation failed: {error}",
            operator=qualified_name(node.op),
            operands=node.describe_operands(),
            source=node.source,
        )
        raise failure(backend, text, error) from error
    if check == "nan":
        check_finite(node, list(map(read, results)))
