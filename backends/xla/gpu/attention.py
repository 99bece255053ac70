"""Attention by cuDNN's flash kernels, which XLA's GPU platform calls: no scores in memory.

The calls are written here, and not by ``jax.nn.dot_product_attention``: that asks the GPU of the
process what it is, where a target has none, and its gradient would run the forward kernel again.
They are the same calls (``tests/backends/xla/test_attention_on_gpu.py`` compares both).

What cuDNN takes: https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Attention.html
"""

from __future__ import annotations

import json
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from fuse.backends.xla.platform import Attention
from fuse.backends.xla.rules.elementwise import is_number

LEAST: Final = 1 << 20
"""Scores from which on the kernels are called. Fewer take 4 MB in float32, which a GPU's cache
holds: writing them out and reading them costs little, and a decoder's single queries multiply
faster as products. Assumed, not measured."""
MULTIPLE: Final = 8
WIDEST: Final = {9: 256}
"""Widths of heads that cuDNN has gradients for, by the major capability."""
WIDTH: Final = 128
"""Of the other capabilities."""
OLDEST: Final = (8, 0)
HELD: Final = 256 << 20
"""Bytes of a bias that is written out for all queries and keys; larger ones go in blocks."""
LOWEST: Final = {"bfloat16": -(2.0**41), "float16": -(2.0**15)}
"""What stands for minus infinity in a bias: JAX's choice, for cuDNN subtracts such scores."""
_NAMES: Final = {"bfloat16": "BF16", "float16": "F16"}
_STATUS_RETURNING: Final = 2
"""The version of XLA's custom calls that has the configuration as text."""


def covered(asked: Attention, capability: tuple[int, int]) -> bool:
    """Whether the kernels compute the call, forward and backward, and should."""
    if not asked.is_grouped():
        return False
    query, (batch, heads, length, width) = asked.query, asked.query.shape
    keys = asked.key.shape[2]
    return (
        capability >= OLDEST
        and str(query.dtype) in _NAMES
        and width % MULTIPLE == 0
        and width <= WIDEST.get(capability[0], WIDTH)
        and is_number(asked.scale)  # an attribute of the call
        and batch * heads * length * keys >= LEAST
        and (asked.bias is None or _takes(asked, asked.bias))
    )


def _takes(asked: Attention, bias: jax.Array) -> bool:
    """Whether the bias can be cuDNN's, which has a row for each query and lengths that are even."""
    length, keys = asked.query.shape[2], asked.key.shape[2]
    rows = int(np.prod(bias.shape[:-2])) * length
    small = rows * keys * asked.query.dtype.itemsize <= HELD
    return not asked.causal and small and length % 2 == keys % 2 == 0


def _bias(asked: Attention) -> tuple[jax.Array, jax.Array] | None:
    """The bias ``[1 or batch, 1 or heads, L, S]`` in the query's dtype, and who sees a key at all.

    The second is ``[.., .., 1 or L, 1]``: cuDNN averages over all keys for a query that sees none.
    """
    if asked.bias is None:
        return None
    bias = asked.bias.reshape((1,) * (4 - asked.bias.ndim) + asked.bias.shape)
    lowest = jnp.asarray(LOWEST[str(asked.query.dtype)], asked.query.dtype)
    if bias.dtype == jnp.bool_:
        sees, added = bias, jnp.where(bias, jnp.zeros((), lowest.dtype), lowest)
    else:
        sees, added = bias != -jnp.inf, jnp.maximum(bias.astype(lowest.dtype), lowest)
    whole = (*bias.shape[:2], asked.query.shape[2], asked.key.shape[2])
    return jnp.broadcast_to(added, whole), jnp.any(sees, -1, keepdims=True)


def _config(asked: Attention, backward: bool) -> str:
    """XLA's ``GpuBackendConfig`` of a call, as text: what is multiplied with what, and the mask."""
    batch, heads, length, _ = asked.query.shape
    score = (batch, heads, length, asked.key.shape[2])
    config: dict[str, Any] = {
        "algorithm": {
            "algo_id": "0",
            "math_type": "TENSOR_OP_MATH",
            "tuning_knobs": {"17": "1", "24": "0"},
            "is_cudnn_frontend": True,
            "workspace_size": "0",
        },
        "fmha_scale": float(asked.scale),
        "dropout_rate": 0.0,
        "seed": 42,
        "mask_type": "CAUSAL" if asked.causal else "NO_MASK",
        "is_flash_attention": True,
        "force_deterministic": backward,  # else sums of gradients come in any order
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
        "intermediate_tensor_shape": {
            "element_type": _NAMES[str(asked.query.dtype)],
            "dimensions": list(map(str, score)),
            "layout": {"minor_to_major": ["3", "2", "1", "0"]},
            "is_dynamic_dimension": [False] * 4,
        },
    }
    return json.dumps(
        {
            "operation_queue_id": "0",
            "cudnn_fmha_backend_config": config | _products(asked, backward),
        }
    )


def _products(asked: Attention, backward: bool) -> dict[str, Any]:
    """The products of a kernel: each one's contracted dimensions and those of samples and heads."""
    at, place = (2, 1) if asked.heads_inside else (1, 2)  # of heads, and of positions
    if not backward:
        return {
            "bmm1_dot_dimension_numbers": _dot(3, 3, at, at),
            "bmm2_dot_dimension_numbers": _dot(3, place, 1, at),
        }
    return {
        "bmm1_grad_gemm1_dot_dimension_numbers": _dot(2, place, 1, at),
        "bmm1_grad_gemm2_dot_dimension_numbers": _dot(3, place, 1, at),
        "bmm2_grad_gemm1_dot_dimension_numbers": _dot(2, place, 1, at),
        "bmm2_grad_gemm2_dot_dimension_numbers": _dot(3, 3, at, at),
    }


def _dot(left: int, right: int, left_heads: int, right_heads: int) -> dict[str, list[str]]:
    return {
        "lhs_contracting_dimensions": [str(left)],
        "rhs_contracting_dimensions": [str(right)],
        "lhs_batch_dimensions": ["0", str(left_heads)],
        "rhs_batch_dimensions": ["0", str(right_heads)],
    }


def _called(
    asked: Attention, backward: bool, operands: list[jax.Array], sums: tuple[int, ...] | None
) -> list[jax.Array]:
    """The kernel's results: arrays like query, key and value, or like the output and its ``sums``.

    Results are ``[batch, heads, L, width]`` in any case; ``heads_inside`` says how they lie.
    """
    query = asked.query
    order = (0, 2, 1, 3) if asked.heads_inside else (0, 1, 2, 3)
    wide = [query, asked.key, asked.value] if backward else [query]
    results = [jax.ShapeDtypeStruct(one.shape, query.dtype) for one in wide]
    layouts: list[tuple[int, ...]] = [order] * len(wide)
    if sums is not None:
        results.append(jax.ShapeDtypeStruct(sums, np.float32))
        layouts.append(tuple(range(len(sums))))
    results.append(jax.ShapeDtypeStruct((0,), np.uint8))  # its workspace, as large as XLA finds
    name = f"__cudnn$fmha{'ScaleBias' if asked.bias is not None else ''}Softmax"
    call = jax.ffi.ffi_call(
        name + "Backward" * backward,
        results,
        output_layouts=[*layouts, (0,)],
        custom_call_api_version=_STATUS_RETURNING,
        legacy_backend_config=_config(asked, backward),
    )
    return list(call(*operands))[:-1]


def _laid(asked: Attention, value: jax.Array) -> jax.Array:
    """An operand ``[batch, heads, n, width]`` with its dimensions as they lie in memory."""
    return value.transpose(0, 2, 1, 3) if asked.heads_inside else value


def attend(asked: Attention) -> tuple[jax.Array, jax.Array]:
    """What ``Platform.attention`` returns, of a call that is ``covered``."""
    operands = [_laid(asked, one) for one in (asked.query, asked.key, asked.value)]
    bias = _bias(asked)
    if bias is not None:
        operands.append(bias[0])
    output, logarithm = _called(asked, False, operands, asked.query.shape[:3])
    if bias is not None:
        output = jnp.where(bias[1], output, jnp.zeros((), output.dtype))
        logarithm = jnp.where(bias[1][..., 0], logarithm, 0)
    return output, logarithm


def attend_gradient(
    asked: Attention, grad: jax.Array, output: jax.Array, logarithm: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What ``Platform.attention_gradient`` returns, of a call that is ``covered``."""
    query, bias = asked.query, _bias(asked)
    if bias is not None:  # no gradient comes from a query that sees no key
        grad = jnp.where(bias[1], grad, jnp.zeros((), grad.dtype))
    sums = logarithm.astype(np.float32).reshape(query.shape[:3])
    operands = [_laid(asked, one) for one in (query, asked.key, asked.value)]
    operands += [sums, _laid(asked, grad.astype(query.dtype))]
    if bias is not None:
        operands.append(bias[0])
    operands.append(_laid(asked, output.astype(query.dtype)))
    grad_query, grad_key, grad_value = _called(asked, True, operands, None)
    return grad_query, grad_key, grad_value
