"""Operators that move whole dimensions: views, splits, concatenation, repetition, flips.

A view operator arrives here only where it is a value (a copy, or a step of a
decomposition): tensors that share memory are resolved before a rule runs.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.overloads import RESHAPED, SPLIT
from fuse.backends.xla.rules.registry import RuleContext, Unsupported, always, rule
from fuse.backends.xla.views import reinterpret

Array = jax.Array


def _shaped(value: Array, shape: tuple[int, ...]) -> Array:
    return value if value.shape == shape else lax.reshape(value, shape)


@rule(*RESHAPED)
def _reshape(ctx: RuleContext, self: Array, *_sizes: int | tuple[int, ...]) -> Array:
    return _shaped(self, ctx.out[0].shape)


@rule("expand", "expand_copy")
def _expand(ctx: RuleContext, self: Array, size: tuple[int, ...], *, implicit: bool) -> Array:
    return jnp.broadcast_to(self, ctx.out[0].shape)


@rule("permute", "permute_copy")
def _permute(ctx: RuleContext, self: Array, dims: tuple[int, ...]) -> Array:
    return lax.transpose(self, tuple(dim % self.ndim for dim in dims))


@rule("transpose.int", "transpose_copy.int")
def _transpose(ctx: RuleContext, self: Array, dim0: int, dim1: int) -> Array:
    return jnp.swapaxes(self, dim0, dim1) if self.ndim else self


@rule("t", "t_copy")
def _t(ctx: RuleContext, self: Array) -> Array:
    return lax.transpose(self, (1, 0)) if self.ndim == 2 else self


@rule("view.dtype", "view_copy.dtype")
def _view_dtype(ctx: RuleContext, self: Array, dtype: str) -> Array:
    return _shaped(reinterpret(self, str(self.dtype), dtype), ctx.out[0].shape)


def split(self: Array, sizes: list[int], dim: int) -> list[Array]:
    """Cut ``self`` along ``dim`` into pieces of ``sizes``."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(lax.slice_in_dim(self, start, start + size, axis=dim))
        start += size
    return pieces


@rule(*SPLIT)
def _split(ctx: RuleContext, self: Array, _sizes: int | tuple[int, ...], dim: int) -> list[Array]:
    dim %= self.ndim
    return split(self, [spec.shape[dim] for spec in ctx.out], dim)


@rule("unbind.int", "unbind_copy.int")
def _unbind(ctx: RuleContext, self: Array, dim: int) -> list[Array]:
    dim %= self.ndim
    pieces = split(self, [1] * self.shape[dim], dim)
    return [lax.squeeze(piece, (dim,)) for piece in pieces]


@rule("cat")
def _cat(ctx: RuleContext, tensors: list[Array], dim: int) -> Array:
    # A 1-d tensor of no elements joins anything (kept by PyTorch from older releases).
    kept = [value for value in tensors if value.shape != (0,)]
    if not kept:
        return jnp.zeros(ctx.out[0].shape, ctx.out[0].dtype)
    kept = [value.astype(ctx.out[0].dtype) for value in kept]
    return lax.concatenate(kept, dim % kept[0].ndim) if len(kept) > 1 else kept[0]


@rule("stack", "_stack")
def _stack(ctx: RuleContext, tensors: list[Array], dim: int) -> Array:
    dim %= tensors[0].ndim + 1
    expanded = [lax.expand_dims(value.astype(ctx.out[0].dtype), (dim,)) for value in tensors]
    return lax.concatenate(expanded, dim)


@rule("_chunk_cat")
def _chunk_cat(ctx: RuleContext, tensors: list[Array], dim: int, num_chunks: int) -> Array:
    # Each tensor is padded along dim to a multiple of num_chunks, cut into chunks that
    # are flattened, and the k-th chunks of all tensors lie side by side.
    dim %= tensors[0].ndim
    rows = []
    for value in tensors:
        chunk = -(-value.shape[dim] // num_chunks)
        config = [(0, 0, 0)] * value.ndim
        config[dim] = (0, chunk * num_chunks - value.shape[dim], 0)
        padded = lax.pad(value, jnp.zeros((), value.dtype), config)
        rows.append(
            lax.reshape(padded, (*value.shape[:dim], num_chunks, _rest(padded, dim) // num_chunks))
        )
        rows[-1] = rows[-1].astype(ctx.out[0].dtype)
    return _shaped(lax.concatenate(rows, dim + 1), ctx.out[0].shape)


def _rest(padded: Array, dim: int) -> int:
    return math.prod(padded.shape[dim:])


@rule("block_diag")
def _block_diag(ctx: RuleContext, tensors: list[Array]) -> Array:
    spec = ctx.out[0]
    zero = jnp.zeros((), spec.dtype)
    rows, column = [], 0
    for value in tensors:
        block = value.reshape((1,) * (2 - value.ndim) + value.shape).astype(spec.dtype)
        after = spec.shape[1] - column - block.shape[1]
        rows.append(lax.pad(block, zero, [(0, 0, 0), (column, after, 0)]))
        column += block.shape[1]
    return lax.concatenate(rows, 0)


@rule("flip")
def _flip(ctx: RuleContext, self: Array, dims: tuple[int, ...]) -> Array:
    return lax.rev(self, tuple(dim % self.ndim for dim in dims)) if self.ndim else self


@rule("roll")
def _roll(
    ctx: RuleContext,
    self: Array,
    shifts: int | tuple[int | jax.Array, ...],
    dims: int | tuple[int, ...],
) -> Array:
    if self.size == 0:
        return self
    shifts = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    dims = (dims,) if isinstance(dims, int) else dims
    if not dims:
        return _shaped(_rolled(self.reshape(-1), shifts[0], 0), self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        self = _rolled(self, shift, dim % self.ndim)
    return self


def _rolled(value: Array, shift: int | jax.Array, dim: int) -> Array:
    size = value.shape[dim]
    cut = -shift % size
    if isinstance(cut, jax.Array):
        twice = lax.concatenate([value, value], dim)
        return lax.dynamic_slice_in_dim(twice, cut, size, dim)
    return value if not cut else lax.concatenate(split(value, [cut, size - cut], dim)[::-1], dim)


@rule("rot90")
def _rot90(ctx: RuleContext, self: Array, k: int, dims: tuple[int, ...]) -> Array:
    first, second = (dim % self.ndim for dim in dims)
    turns = k % 4
    if turns == 2:
        return lax.rev(self, (first, second))
    if turns == 1:
        return jnp.swapaxes(lax.rev(self, (second,)), first, second)
    return lax.rev(jnp.swapaxes(self, first, second), (second,)) if turns else self


@rule("repeat", "tile")
def _repeat(ctx: RuleContext, self: Array, repeats: tuple[int, ...]) -> Array:
    repeats = (1,) * (self.ndim - len(repeats)) + tuple(repeats)
    shape = (1,) * (len(repeats) - self.ndim) + self.shape
    # [a, b] times (m, n): broadcast to [m, a, n, b], then merge the pairs.
    paired = [part for pair in zip(repeats, shape, strict=True) for part in pair]
    own = tuple(2 * (len(repeats) - self.ndim + dim) + 1 for dim in range(self.ndim))
    return _shaped(lax.broadcast_in_dim(self, paired, own), ctx.out[0].shape)


@rule("repeat_interleave.Tensor", may_refuse=always)
def _repeat_interleave(ctx: RuleContext, repeats: Array, *, output_size: int | None) -> Array:
    if output_size is None:
        raise Unsupported("the number of results depends on the data")
    # Mark where each run ends; the running count of marks is the index of the run.
    ends = jnp.cumsum(repeats)
    marks = jnp.zeros(output_size, "int32").at[ends].add(1, mode="drop")
    return jnp.cumsum(marks).astype(ctx.out[0].dtype)


@rule("pixel_shuffle")
def _pixel_shuffle(ctx: RuleContext, self: Array, upscale_factor: int) -> Array:
    *batch, channels, height, width = self.shape
    r = upscale_factor
    split_up = lax.reshape(self, (*batch, channels // r**2, r, r, height, width))
    return _shaped(_tail_permuted(split_up, (0, 3, 1, 4, 2)), ctx.out[0].shape)


@rule("pixel_unshuffle")
def _pixel_unshuffle(ctx: RuleContext, self: Array, downscale_factor: int) -> Array:
    *batch, channels, height, width = self.shape
    r = downscale_factor
    split_up = lax.reshape(self, (*batch, channels, height // r, r, width // r, r))
    return _shaped(_tail_permuted(split_up, (0, 2, 4, 1, 3)), ctx.out[0].shape)


def _tail_permuted(value: Array, order: tuple[int, ...]) -> Array:
    head = value.ndim - len(order)
    return lax.transpose(value, (*range(head), *(head + dim for dim in order)))


@rule("channel_shuffle", "native_channel_shuffle")
def _channel_shuffle(ctx: RuleContext, self: Array, groups: int) -> Array:
    batch, channels, *rest = self.shape
    grouped = lax.reshape(self, (batch, groups, channels // groups, *rest))
    return _shaped(jnp.swapaxes(grouped, 1, 2), self.shape)
