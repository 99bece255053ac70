"""What Debug Eager checks: indices and other data before an operation runs, results after it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from fuse.errors import NonFiniteError, describe
from fuse.trace.bind import bind
from fuse.trace.functional import find_overload, qualified_name
from fuse.trace.node import DtypeArg, HostArg, Node, NumberArg, TensorArg, Trace
from fuse.trace.spec import View

REFUSING = frozenset(
    {
        "_linalg_svd",
        "bernoulli",
        "bernoulli.Tensor",
        "bernoulli_.Tensor",
        "binary_cross_entropy",
        "embedding",
        "embedding_renorm",
        "_embedding_bag",
        "_embedding_bag_forward_only",
        "gather",
        "index.Tensor",
        "_unsafe_index.Tensor",
        "index_add",
        "index_copy",
        "index_fill.int_Scalar",
        "index_fill.int_Tensor",
        "index_put",
        "_unsafe_index_put",
        "_index_put_impl",
        "index_reduce",
        "index_select",
        "linalg_lu_solve",
        "lu_unpack",
        "masked_scatter",
        "max_unpool2d",
        "max_unpool3d",
        "multilabel_margin_loss_forward",
        "nll_loss_forward",
        "nll_loss2d_forward",
        "normal.Tensor_Tensor",
        "normal.Tensor_float",
        "normal.float_Tensor",
        "put",
        "scatter.src",
        "scatter.value",
        "scatter.reduce",
        "scatter.value_reduce",
        "scatter_add",
        "scatter_reduce.two",
        "searchsorted.Scalar",
        "searchsorted.Tensor",
        "take",
        "multi_margin_loss",
        "multinomial",
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
    values = {leaf.value: array for leaf, array in zip(trace.leaves, arrays, strict=True)}
    words = np.frombuffer(scalars, np.int64)
    positional, keyword = bind(node)
    arguments = [_host(value, node, values, words) for value in positional]
    options = {name: _host(value, node, values, words) for name, value in keyword.items()}
    with torch.random.fork_rng(devices=[]):  # the CPU's generator is not the device's to use
        find_overload(node.target)(*arguments, **options)


def _divides_integers(node: Node) -> bool:
    results = [output.view for output in node.outputs] + [write.view for write in node.writes]
    return node.target in DIVIDING and all("int" in view.dtype for view in results)


def _host(value: Any, node: Node, values: dict[int, np.ndarray], words: np.ndarray) -> Any:
    if isinstance(value, TensorArg):
        operand = node.operands[value.index]
        slot = node.slot_of(operand.place)
        offset = operand.view.offset if slot is None else int(words[slot])
        return host_tensor(values.get(operand.value), operand.view, offset)
    if isinstance(value, HostArg):
        return torch.tensor(_number(value, node, words), dtype=getattr(torch, value.dtype))
    if isinstance(value, NumberArg):
        return _number(value, node, words)
    if isinstance(value, DtypeArg):
        return getattr(torch, value.name)
    if isinstance(value, tuple):
        return [_host(item, node, values, words) for item in value]
    return value


def _number(value: HostArg | NumberArg, node: Node, words: np.ndarray) -> Any:
    slot = node.slot_of(value.place)
    if slot is None:
        return value.number
    word = words[slot : slot + 1]
    return float(word.view(np.float64)[0]) if isinstance(value.number, float) else int(word[0])


def host_tensor(array: np.ndarray | None, view: View, offset: int) -> torch.Tensor:
    """A CPU tensor, a copy, of ``view`` at ``offset`` over a buffer's array (``None``: zeros)."""
    dtype = getattr(torch, view.dtype)
    if array is None:
        return torch.zeros(view.shape, dtype=dtype)
    flat = torch.from_numpy(np.array(array).reshape(-1).view(np.uint8)).view(dtype)
    return flat.as_strided(view.shape, view.strides, offset).clone()


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
                    remedy="look at the operands of this line; leave check='nan' to go on",
                )
            )


_SMALL_FLOATS = (np.dtype(ml_dtypes.bfloat16),)
