"""Embedding tables: rows read by index, and gradients summed back into them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from fuse.backends.embedding import MAX, MEAN, SUM, Bags, Embedding
from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray


@rule("embedding")
def _embedding(ctx: RuleContext, weight: Array, indices: Array, *_of_gradient: object) -> Array:
    return weight[indices]


def _summed_rows(
    grad: Array, index: Array, rows: int, padding_idx: int, by_frequency: bool
) -> Array:
    """Sum ``grad[k]`` into row ``index[k]`` of ``rows`` zeros; the padding row stays zero."""
    if by_frequency:
        occurrences = np.bincount(index, minlength=rows)
        grad = grad / occurrences[index][:, None].astype(grad.dtype)
    total = np.zeros((rows, grad.shape[1]), grad.dtype)
    np.add.at(total, index, grad)
    if 0 <= padding_idx < rows:
        total[padding_idx] = 0
    return total


def _gradient(
    ctx: RuleContext, grad: Array, indices: Array, padding_idx: int, by_frequency: bool
) -> Array:
    rows, width = ctx.out[0].shape
    grad = grad.reshape(indices.size, width)
    return _summed_rows(grad, indices.reshape(-1), rows, padding_idx, by_frequency)


@rule("embedding_renorm")
def _embedding_renorm(
    ctx: RuleContext, self: Array, indices: Array, max_norm: float, norm_type: float
) -> Array:
    """Scale every row that is used and longer than ``max_norm`` down to it."""
    result = ctx.widened(self).copy()
    used = np.unique(indices)
    norm = np.linalg.norm(result[used], norm_type, axis=1)
    # 1e-7 as in ATen/native/Embedding.cpp
    scale = np.where(norm > max_norm, max_norm / (norm + 1e-7), 1)
    result[used] *= scale[:, None].astype(result.dtype)
    return result


def _bag_of(offsets: Array, count: int) -> Array:
    """The bag of each of ``count`` indices: how many bags start at or before it, less one."""
    return np.searchsorted(offsets, np.arange(count), side="right") - 1


def _members(bag: Array, bags: int, valid: Array) -> Iterator[tuple[int, Array]]:
    """Each bag that holds anything, with the positions of its indices."""
    bounds = np.searchsorted(bag, np.arange(bags + 1))  # bags are numbered in order
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        positions = start + np.flatnonzero(valid[start:end])
        if positions.size:
            yield number, positions


def _resized(sizes: Array, shape: tuple[int, ...]) -> Array:
    """Cut or zero-extend the bags' sizes: PyTorch's CPU and meta kernels differ in how many."""
    return np.pad(sizes[: shape[0]], (0, max(shape[0] - sizes.size, 0)))


def _bags(
    ctx: RuleContext, weight: Array, indices: Array, offsets: Array, how: Bags[Array]
) -> tuple[Array, ...]:
    """Reduced rows, each index's bag, bag sizes, and the rows that maxima came from.

    The lists PyTorch's kernel does not need are zero or, where it leaves them so, empty; the
    last is a second list of sizes for a mean.
    """
    wide = ctx.widened(weight)
    total, bag_list, sizes, last = (np.zeros(spec.shape, spec.dtype) for spec in ctx.out)
    total = total.astype(wide.dtype)
    bag = _bag_of(offsets, indices.size)
    valid = indices != how.padding
    counts = np.bincount(bag[valid], minlength=total.shape[0])
    for number, positions in _members(bag, total.shape[0], valid):
        rows = wide[indices[positions]]
        if how.mode == MAX:
            total[number] = rows.max(axis=0)
            last[number] = indices[positions[rows.argmax(axis=0)]]
            continue
        if how.weights is not None:
            rows = rows * ctx.widened(how.weights)[positions, None]
        total[number] = rows.sum(axis=0) / (counts[number] if how.mode == MEAN else 1)
    if bag_list.shape == bag.shape:
        bag_list = bag
    if how.mode != SUM and indices.size:
        sizes = _resized(counts, sizes.shape)
    if how.mode == MEAN and indices.size:
        last = _resized(counts, last.shape)
    return total, bag_list, sizes, last


def _bags_gradient(
    ctx: RuleContext,
    grad: Array,
    indices: Array,
    bag: Array,
    sizes: Array,
    maximum_indices: Array,
    how: Bags[Array],
) -> Array:
    rows, width = ctx.out[0].shape
    sizes = sizes[:, None]
    if how.mode == MAX:
        # An empty bag's indices are 0 and its gradient belongs to no row.
        taken = np.where(sizes > 0, grad, np.zeros((), grad.dtype))
        total = np.zeros((rows, width), grad.dtype)
        np.add.at(total, (maximum_indices, np.arange(width)), taken)
        return total
    if how.mode == MEAN:
        grad = grad / np.maximum(sizes, 1).astype(grad.dtype)
    spread = grad[bag]
    if how.weights is not None:
        spread = spread * ctx.widened(how.weights)[:, None]
    return _summed_rows(spread, indices, rows, how.padding, False)


def _weights_gradient(
    ctx: RuleContext, grad: Array, weight: Array, indices: Array, bag: Array, padding_idx: int
) -> Array:
    products = ctx.widened(grad)[bag] * ctx.widened(weight)[indices]
    return np.where(indices != padding_idx, products.sum(axis=1), 0)


Embedding(_gradient, _bag_of, _bags, _bags_gradient, _weights_gradient).register(rule)
