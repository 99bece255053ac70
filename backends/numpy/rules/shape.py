"""Operators that move whole dimensions: views, splits, concatenation, repetition, flips.

A view operator arrives here only where it is a value (a copy, or a step of a
decomposition): tensors that share memory are resolved before a rule runs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuse.backends.numpy.rules.context import convert
from fuse.backends.numpy.rules.registry import RuleContext, rule
from fuse.backends.numpy.rules.windows import merged
from fuse.backends.overloads import RESHAPED, SPLIT

Array = np.ndarray


@rule(*RESHAPED)
def _reshape(ctx: RuleContext, self: Array, *_sizes: int | tuple[int, ...]) -> Array:
    return self.reshape(ctx.out[0].shape)


@rule("expand", "expand_copy")
def _expand(ctx: RuleContext, self: Array, size: tuple[int, ...], *, implicit: bool) -> Array:
    return np.broadcast_to(self, ctx.out[0].shape)


@rule("permute", "permute_copy")
def _permute(ctx: RuleContext, self: Array, dims: tuple[int, ...]) -> Array:
    return np.transpose(self, dims)


@rule("transpose.int", "transpose_copy.int")
def _transpose(ctx: RuleContext, self: Array, dim0: int, dim1: int) -> Array:
    return np.swapaxes(self, dim0, dim1) if self.ndim else self


@rule("t", "t_copy")
def _t(ctx: RuleContext, self: Array) -> Array:
    return self.T


@rule("view.dtype", "view_copy.dtype")
def _view_dtype(ctx: RuleContext, self: Array, dtype: str) -> Array:
    """The same bytes, read as ``dtype``."""
    return np.ascontiguousarray(self).reshape(-1).view(dtype).reshape(ctx.out[0].shape)


@rule(*SPLIT)
def _split(ctx: RuleContext, self: Array, _sizes: int | tuple[int, ...], dim: int) -> list[Array]:
    ends = np.cumsum([piece.shape[dim] for piece in ctx.out])
    return np.split(self, ends[:-1], dim)


@rule("unbind.int", "unbind_copy.int")
def _unbind(ctx: RuleContext, self: Array, dim: int) -> list[Array]:
    return list(np.moveaxis(self, dim, 0))


@rule("cat")
def _cat(ctx: RuleContext, tensors: list[Array], dim: int) -> Array:
    # A 1-d tensor of no elements joins anything (kept by PyTorch from older releases).
    kept = [convert(value, ctx.out[0].dtype) for value in tensors if value.shape != (0,)]
    return np.concatenate(kept, dim) if kept else np.zeros(ctx.out[0].shape, ctx.out[0].dtype)


@rule("stack", "_stack")
def _stack(ctx: RuleContext, tensors: list[Array], dim: int) -> Array:
    return np.stack([convert(value, ctx.out[0].dtype) for value in tensors], dim)


@rule("_chunk_cat")
def _chunk_cat(ctx: RuleContext, tensors: list[Array], dim: int, num_chunks: int) -> Array:
    """Pad each tensor along ``dim`` to ``num_chunks`` equal chunks and flatten each chunk.

    The k-th chunks of all tensors then lie side by side.
    """
    dim %= tensors[0].ndim
    rows = []
    for value in tensors:
        chunk = -(-value.shape[dim] // num_chunks)
        shape = (*value.shape[:dim], chunk * num_chunks, *value.shape[dim + 1 :])
        padded = np.zeros(shape, ctx.out[0].dtype)
        padded[(slice(None),) * dim + (slice(value.shape[dim]),)] = value
        rows.append(
            merged(
                padded.reshape(*shape[:dim], num_chunks, chunk, *shape[dim + 1 :]), value.ndim - dim
            )
        )
    return np.concatenate(rows, dim + 1).reshape(ctx.out[0].shape)


@rule("block_diag")
def _block_diag(ctx: RuleContext, tensors: list[Array]) -> Array:
    result = np.zeros(ctx.out[0].shape, ctx.out[0].dtype)
    row = column = 0
    for value in tensors:
        block = np.atleast_2d(value)
        result[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return result


@rule("flip")
def _flip(ctx: RuleContext, self: Array, dims: tuple[int, ...]) -> Array:
    return np.flip(self, dims) if self.ndim else self


@rule("roll")
def _roll(ctx: RuleContext, self: Array, shifts: Any, dims: Any) -> Array:
    if dims == ():  # the flattened tensor moves
        (shifts,) = shifts
    return np.roll(self, shifts, dims if dims != () else None)


@rule("rot90")
def _rot90(ctx: RuleContext, self: Array, k: int, dims: tuple[int, int]) -> Array:
    return np.rot90(self, k, dims)


@rule("repeat", "tile")
def _repeat(ctx: RuleContext, self: Array, repeats: tuple[int, ...]) -> Array:
    return np.tile(self, repeats)


def _refuse_unknown_size(
    *_arguments: object, output_size: int | None, **_options: object
) -> str | None:
    return "the number of results depends on the data" if output_size is None else None


@rule("repeat_interleave.Tensor", refuse=_refuse_unknown_size)
def _repeat_interleave(ctx: RuleContext, repeats: Array, *, output_size: int | None) -> Array:
    """Position ``k`` of ``repeats``, ``repeats[k]`` times."""
    return np.repeat(np.arange(repeats.size), repeats)


@rule("pixel_shuffle")
def _pixel_shuffle(ctx: RuleContext, self: Array, upscale_factor: int) -> Array:
    *batch, channels, height, width = self.shape
    r = upscale_factor
    blocks = self.reshape(math.prod(batch), channels // r**2, r, r, height, width)
    return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(ctx.out[0].shape)


@rule("pixel_unshuffle")
def _pixel_unshuffle(ctx: RuleContext, self: Array, downscale_factor: int) -> Array:
    *batch, channels, height, width = self.shape
    r = downscale_factor
    blocks = self.reshape(math.prod(batch), channels, height // r, r, width // r, r)
    return blocks.transpose(0, 1, 3, 5, 2, 4).reshape(ctx.out[0].shape)


@rule("channel_shuffle", "native_channel_shuffle")
def _channel_shuffle(ctx: RuleContext, self: Array, groups: int) -> Array:
    batch, channels, *rest = self.shape
    grouped = self.reshape(batch, groups, channels // groups, *rest)
    return grouped.swapaxes(1, 2).reshape(self.shape)
