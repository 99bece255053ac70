"""NumPy rules of the connectionist temporal classification loss.

The forward and backward variables of Graves et al., "Connectionist Temporal Classification"
(2006), section 4.1, in log space, sample by sample. A target of labels a b becomes the path
positions - a - b -, blanks between and around; at each step a path stays, moves on by one, or
skips the blank between two different labels.
"""

from __future__ import annotations

import math

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray
Lengths = tuple[int, ...]


def _paths(targets: Array, lengths: Lengths, blank: int) -> list[Array]:
    """The labels of every sample's path positions: int64[2 * length + 1]."""
    found, start = [], 0
    for row, length in enumerate(lengths):
        labels = targets[start : start + length] if targets.ndim == 1 else targets[row, :length]
        path = np.full(2 * length + 1, blank, np.int64)
        path[1::2] = labels
        found.append(path)
        start += length
    return found


def _log_sum(*terms: Array) -> Array:
    return np.logaddexp.reduce(np.stack(terms), axis=0)


def _moved(row: Array, by: int) -> Array:
    """The row shifted to the right, -inf shifted in."""
    return np.concatenate((np.full(by, -math.inf, row.dtype), row))[: row.size]


def _forward(emitted: Array, path: Array, blank: int) -> Array:
    """Log-probability of all ways to be at a position after a step: [time, positions]."""
    skips = np.zeros(path.size, np.bool_)
    skips[2:] = (path[2:] != blank) & (path[2:] != path[:-2])
    rows = [np.where(np.arange(path.size) < 2, emitted[0], -math.inf)]
    for now in emitted[1:]:
        before = rows[-1]
        skipped = np.where(skips, _moved(before, 2), -math.inf)
        rows.append(_log_sum(before, _moved(before, 1), skipped) + now)
    return np.stack(rows)


@rule("_ctc_loss")
def _ctc_loss(
    ctx: RuleContext,
    log_probs: Array,
    targets: Array,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Array, Array]:
    loss = np.empty(log_probs.shape[1], log_probs.dtype)
    log_alpha = np.full(ctx.out[1].shape, -math.inf, log_probs.dtype)
    for row, path in enumerate(_paths(targets, target_lengths, blank)):
        steps = input_lengths[row]
        if steps == 0:  # only the empty target is sure
            loss[row] = 0.0 if path.size == 1 else math.inf
            continue
        alpha = _forward(log_probs[:steps, row][:, path], path, blank)
        log_alpha[row, :steps, : path.size] = alpha
        loss[row] = -_log_sum(*alpha[-1, -2:])
    return loss, log_alpha


@rule("_ctc_loss_backward")
def _ctc_loss_backward(
    ctx: RuleContext,
    grad: Array,
    log_probs: Array,
    targets: Array,
    input_lengths: Lengths,
    target_lengths: Lengths,
    loss: Array,
    log_alpha: Array,
    blank: int,
    zero_infinity: bool = False,
) -> Array:
    result = np.zeros(log_probs.shape, log_probs.dtype)
    for row, path in enumerate(_paths(targets, target_lengths, blank)):
        steps = input_lengths[row]
        if steps == 0 or (zero_infinity and math.isinf(loss[row])):
            continue
        own = log_probs[:steps, row]
        # The backward variables are the forward ones of the path and the time turned round.
        beta = _forward(own[::-1, path[::-1]], path[::-1], blank)[::-1, ::-1]
        joint = log_alpha[row, :steps, : path.size] + beta
        occupancy = np.full(own.shape, -math.inf, own.dtype)
        for position, label in enumerate(path):
            occupancy[:, label] = np.logaddexp(occupancy[:, label], joint[:, position])
        slope = np.exp(own) - np.exp(occupancy + loss[row] - own)
        result[:steps, row] = slope * grad.reshape(-1)[row]
    return result
