"""Attention by the kernels that JAX ships for TPUs, ``splash_attention``: no scores in memory.

They see a head at a time, ``[heads, L, width]``; samples of a batch are heads too. They are called
where they cover the call, and where the scores are so many that they win: see ``covered``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from fuse.backends.precision import of_products
from fuse.backends.xla.platform import Attention
from fuse.backends.xla.tpu.masks import Mask, mask_of
from fuse.backends.xla.tpu.work import Work

LEAST: Final = {"default": 32 << 20, "highest": 64 << 20}
"""Scores from which on the kernels are called, by the precision of their products: of the default,
[1, 8, 2048, 2048]. There they win, by what the compiler says of the rest, if they reach a fifth of
the peak of a v5e or v6e; with half as many scores it would have to be two fifths of a v5e's. In
float32, where products take most of the time, they are called where scores would go in blocks."""
LANES: Final = 128
WIDEST: Final = 256
BLOCKS: Final = (512, 256, 128)
"""Rows of a block, the largest that divides a length: scores of 512 x 512 are a megabyte of the 16
that a kernel has. With blocks of 128 JAX's other kernel, ``flash_attention``, was seen to reach a
twenty-fifth of a v5e's peak (jax-ml/jax#24633)."""
FORWARD_PRODUCTS: Final = 2
GRADIENT_PRODUCTS: Final = 7
"""Of the two kernels of a gradient: three for queries, four for keys and values. Scores are
multiplied in both, for one kernel would hold as many gradients of queries as there are blocks."""

PASSES: Final = {"highest": 6, "default": 1}
"""Products of bfloat16 that a matrix unit makes one of float32 of."""

_PALLAS: Final = "jax.experimental.pallas.ops.tpu.splash_attention."
_GRADIENT_PARAMETERS: Final = (
    "save_residuals",
    "mask_value",
    "is_mqa",
    "block_sizes",
    "residual_checkpoint_name",
    "mask_function",
    "attn_logits_soft_cap",
    "interpret",
    "res",
    "do",
)
"""Those of JAX's private gradient, the same from JAX 0.10.0 to 0.12.0."""
_RESIDUALS: Final = 9


@dataclass(frozen=True)
class _Splash:
    """JAX's modules, and its gradient from stored results where it is the one that is known."""

    kernel: Any
    masks: Any
    gradient: Any | None


@functools.cache
def _splash() -> _Splash | None:
    """Loaded when a program first needs it, for Pallas takes 40 ms to import.

    ``None`` where JAX has it no more. Without the gradient, which has no public name, gradients are
    written out from the kernel's results: ``jax.vjp`` would run the forward kernel once more.
    """
    try:
        kernel = importlib.import_module(_PALLAS + "splash_attention_kernel")
        masks = importlib.import_module(_PALLAS + "splash_attention_mask")
    except ImportError:
        return None
    gradient = getattr(kernel, "_splash_attention_bwd", None)
    residuals = getattr(getattr(kernel, "SplashResidualsType", None), "__args__", ())
    if gradient is None or len(residuals) != _RESIDUALS:
        return _Splash(kernel, masks, None)
    known = tuple(inspect.signature(gradient).parameters) == _GRADIENT_PARAMETERS
    return _Splash(kernel, masks, gradient if known else None)


def covered(asked: Attention) -> Mask | None:
    """The mask of a call that the kernels compute, and should; ``None`` for any other.

    Lengths are multiples of 128, those of causal calls equal, and the width is up to 256. A bias is
    a mask that is known while the program is compiled: its empty blocks are not computed.
    """
    if not asked.is_grouped():
        return None
    query, (batch, heads, length, width) = asked.query, asked.query.shape
    keys = asked.key.shape[2]
    fits = (
        query.dtype in (jnp.bfloat16, jnp.float32)
        and width <= WIDEST
        and length % LANES == keys % LANES == 0
        and (length == keys or not asked.causal)
        and batch * heads * length * keys >= LEAST[_precision(query.dtype)]
        and _splash() is not None
    )
    return mask_of(asked) if fits else None


def _block(length: int) -> int:
    return next(size for size in BLOCKS if length % size == 0)


@functools.lru_cache(maxsize=64)
def _kernel(mask: Mask, interpret: bool) -> Any:
    """JAX's kernel, with the blocks that a mask leaves as arrays of the host."""
    splash = _splash()
    assert splash is not None
    rows, columns = _block(mask.queries), _block(mask.keys)
    sizes = splash.kernel.BlockSizes(
        block_q=rows,
        block_kv=columns,
        block_kv_compute=columns,
        block_q_dkv=rows,
        block_kv_dkv=columns,
        block_kv_dkv_compute=columns,
        block_q_dq=rows,
        block_kv_dq=columns,
    )
    seen = mask.seen()
    if seen is not None:
        known = splash.masks.NumpyMask(seen)
    else:
        form = splash.masks.CausalMask if mask.causal else splash.masks.FullMask
        known = form((mask.queries, mask.keys))
    with jax.ensure_compile_time_eval():
        made = splash.kernel.make_splash_mha(
            mask=splash.masks.MultiHeadMask([known]),  # of every head
            block_sizes=sizes,
            save_residuals=True,
            head_shards=1,
            q_seq_shards=1,
            interpret=interpret,
        )
    return jax.tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, made
    )


def _precision(dtype: Any) -> str:
    """Of the kernels' products: "high", three of bfloat16, they do not have, and get float32."""
    return "highest" if dtype == jnp.float32 and of_products() != "medium" else "default"


def _heads(value: jax.Array) -> jax.Array:
    """``[b, h, n, d]`` as ``[b * h, n, d']``: zeros fill a width that vectors do not have.

    They add nothing to a product, and their own results are dropped.
    """
    flat = value.reshape(-1, *value.shape[-2:])
    width = value.shape[-1]
    wide = LANES // 2 if width <= LANES // 2 else -(-width // LANES) * LANES
    return flat if wide == width else jnp.pad(flat, ((0, 0), (0, 0), (0, wide - width)))


def _times(value: jax.Array, scale: float | jax.Array) -> jax.Array:
    """A product in float32, in the dtype of ``value``."""
    scaled: jax.Array = value.astype(jnp.float32) * jnp.asarray(scale).astype(jnp.float32)
    return scaled.astype(value.dtype)


def _work(asked: Attention, mask: Mask, products: int, arrays: int) -> Work:
    """Of the blocks that the mask leaves: the keys of each block of queries are read for it."""
    query, key = asked.query, asked.key
    length, keys, width = query.shape[2], key.shape[2], _heads(query[:1, :1, :1]).shape[-1]
    rows, columns = _block(length), _block(keys)
    seen = mask.blocks(rows, columns)
    heads = query.shape[0] * query.shape[1]
    flops = 2 * products * heads * seen * rows * columns * width * PASSES[_precision(query.dtype)]
    row = width * query.dtype.itemsize
    nbytes = heads * row * (arrays * length + products * seen * columns)
    return Work(flops, nbytes, width)


def attend(asked: Attention, interpret: bool = False) -> tuple[jax.Array, jax.Array] | None:
    """What ``Platform.attention`` returns: ``None`` for a call that is not ``covered``.

    The scale is multiplied into the queries, which rounds them once more where they are bfloat16
    and it is no power of two. ``interpret``: by Pallas's interpreter, on any platform.
    """
    mask = covered(asked)
    if mask is None:
        return None
    query, width = asked.query, asked.query.shape[-1]
    kernel = _kernel(mask, interpret)
    scope = _work(asked, mask, FORWARD_PRODUCTS, 2).scope()
    with jax.enable_x64(False), jax.default_matmul_precision(_precision(query.dtype)), scope:
        operands = (_times(query, asked.scale), asked.key, asked.value)
        output, (logarithm,) = kernel(*map(_heads, operands))
    output = output[..., :width].reshape(query.shape)
    return output, logarithm.reshape(query.shape[:-1])


def has_gradient() -> bool:
    """Whether JAX has the gradient from stored results that is known here."""
    splash = _splash()
    return splash is not None and splash.gradient is not None


def attend_gradient(
    asked: Attention,
    grad: jax.Array,
    output: jax.Array,
    logarithm: jax.Array,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array] | None:
    """What ``Platform.attention_gradient`` returns, without computing the output again.

    ``None`` for a call that is not ``covered``, and without ``has_gradient``.

    Args:
        asked: what was computed.
        grad, output: ``[batch, heads, L, width]``.
        logarithm: float32, as many as ``[batch, heads, L]``.
        interpret: as of ``attend``.
    """
    mask = covered(asked) if has_gradient() else None
    if mask is None:
        return None
    splash, query = _splash(), asked.query
    assert splash is not None and splash.gradient is not None
    kernel = _kernel(mask, interpret)
    scope = _work(asked, mask, GRADIENT_PRODUCTS, 8).scope(kernels=2)
    with jax.enable_x64(False), jax.default_matmul_precision(_precision(query.dtype)), scope:
        operands = (_times(query, asked.scale), asked.key, asked.value)
        q, k, v = map(_heads, operands)
        logs = logarithm.astype(jnp.float32).reshape(q.shape[:2])
        masks = (kernel.dq_mask_info, kernel.dkv_mask_info)
        output, grad = output.astype(query.dtype), grad.astype(query.dtype)
        residuals = (q, k, v, None, None, _heads(output), logs, *masks)
        names = _GRADIENT_PARAMETERS[:-2]
        found = splash.gradient(*(kernel.kwargs[name] for name in names), residuals, _heads(grad))
        grads = (one for one in found if one is not None)
        cut = [
            one[..., : like.shape[-1]].reshape(like.shape)
            for one, like in zip(grads, (query, asked.key, asked.value), strict=True)
        ]
        return _times(cut[0], asked.scale), cut[1], cut[2]
