"""XLA rules of the connectionist temporal classification loss.

The forward and backward variables of Graves et al., "Connectionist Temporal Classification"
(2006), section 4.1, in log space, as ``lax.scan`` over time: a row a sample of the batch, a
column a position of the target with a blank before, between and after its labels.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.xla.rules.registry import RuleContext, Unsupported, always, rule

_NEVER = -jnp.inf


Lengths = tuple[int, ...] | jax.Array


class _Problem:
    """The lattice of one batch: labels, and which positions and steps exist."""

    def __init__(
        self,
        log_probs: jax.Array,
        targets: jax.Array,
        input_lengths: Lengths,
        target_lengths: Lengths,
        blank: int,
        width: int,
    ) -> None:
        batch = log_probs.shape[1]
        self.lengths = jnp.asarray(input_lengths, jnp.int64)
        self.sizes = jnp.asarray(target_lengths, jnp.int64)
        longest = (width - 1) // 2
        at = jnp.arange(longest)
        if targets.ndim == 1:
            starts = jnp.cumsum(self.sizes) - self.sizes
            where = jnp.clip(starts[:, None] + at, 0, max(targets.shape[0] - 1, 0))
            labels = targets[where] if targets.shape[0] else jnp.zeros((batch, longest), jnp.int64)
        else:
            labels = targets[:, :longest]
        labels = jnp.where(at < self.sizes[:, None], labels, blank)
        blanks = jnp.full((batch, longest + 1), blank, labels.dtype)
        joined = jnp.stack([blanks[:, :longest], labels], 2).reshape(batch, 2 * longest)
        self.labels = jnp.concatenate([joined, blanks[:, longest:]], 1)
        place = jnp.arange(width)
        self.exists = place < 2 * self.sizes[:, None] + 1
        # A blank may be skipped between two different labels.
        two_back = jnp.concatenate([self.labels[:, :2], self.labels[:, :-2]], 1)[:, :width]
        self.skips = (place >= 2) & (self.labels != blank) & (self.labels != two_back)
        self.place = place

    def emissions(self, log_probs: jax.Array) -> jax.Array:
        """Log-probability of every position's label: (time, batch, width)."""
        index = jnp.broadcast_to(self.labels, (log_probs.shape[0], *self.labels.shape))
        return jnp.take_along_axis(log_probs, index, 2)


def _sum(*terms: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(jnp.stack(terms), axis=0)


def _back(row: jax.Array, by: int) -> jax.Array:
    return jnp.pad(row, ((0, 0), (by, 0)), constant_values=_NEVER)[:, : row.shape[1]]


def _ahead(row: jax.Array, by: int) -> jax.Array:
    return jnp.pad(row, ((0, 0), (0, by)), constant_values=_NEVER)[:, by:]


def _forward(problem: _Problem, emitted: jax.Array) -> jax.Array:
    """Log forward variables, (time, batch, width)."""
    start = (problem.place < 2) & problem.exists
    first = jnp.where(start, emitted[0], _NEVER)

    def step(row: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
        skipped = jnp.where(problem.skips, _back(row, 2), _NEVER)
        following = _sum(row, _back(row, 1), skipped) + now
        following = jnp.where(problem.exists, following, _NEVER)
        return following, following

    _, rest = lax.scan(step, first, emitted[1:])
    return jnp.concatenate([first[None], rest])


def _last(row: jax.Array, problem: _Problem) -> jax.Array:
    """Log-sum over the two positions in which a path may end."""
    final = 2 * problem.sizes
    ends = (problem.place == final[:, None]) | (problem.place == final[:, None] - 1)
    return jax.nn.logsumexp(jnp.where(ends, row, _NEVER), axis=1)


def _counts(lengths: Lengths, name: str) -> None:
    if isinstance(lengths, jax.Array) or not all(isinstance(n, int) for n in lengths):
        raise Unsupported(f"{name} as a tensor: the result's shape depends on it")


@rule("_ctc_loss", may_refuse=always)
def _ctc_loss(
    ctx: RuleContext,
    log_probs: jax.Array,
    targets: jax.Array,
    input_lengths: tuple[int, ...],
    target_lengths: tuple[int, ...],
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[jax.Array, jax.Array]:
    _counts(target_lengths, "target_lengths")
    time, batch = log_probs.shape[:2]
    width = ctx.out[1].shape[2]
    problem = _Problem(log_probs, targets, input_lengths, target_lengths, blank, width)
    alpha = _forward(problem, problem.emissions(log_probs))
    ends = jnp.clip(problem.lengths - 1, 0, time - 1)
    loss = -_last(alpha[ends, jnp.arange(batch)], problem)
    # No step at all: only the empty target is sure.
    empty = jnp.where(problem.sizes == 0, 0.0, jnp.inf).astype(loss.dtype)
    loss = jnp.where(problem.lengths == 0, empty, loss)
    return loss, jnp.swapaxes(alpha, 0, 1)


@rule("_ctc_loss_backward", may_refuse=always)
def _ctc_loss_backward(
    ctx: RuleContext,
    grad: jax.Array,
    log_probs: jax.Array,
    targets: jax.Array,
    input_lengths: tuple[int, ...],
    target_lengths: tuple[int, ...],
    loss: jax.Array,
    log_alpha: jax.Array,
    blank: int,
    zero_infinity: bool = False,
) -> jax.Array:
    _counts(target_lengths, "target_lengths")
    time, batch, classes = log_probs.shape
    problem = _Problem(log_probs, targets, input_lengths, target_lengths, blank, log_alpha.shape[2])
    emitted = problem.emissions(log_probs)
    beta = _backward(problem, emitted)
    # Occupancy of each position, gathered by class.
    alpha = jnp.swapaxes(log_alpha, 0, 1)
    joint = alpha + beta
    peak = jnp.max(joint, axis=2, keepdims=True)
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    weight = jnp.exp(joint - peak)
    rows = jnp.arange(batch)[:, None]
    by_class = jnp.zeros((time, batch, classes), log_probs.dtype)
    by_class = by_class.at[:, rows, problem.labels].add(weight)
    occupancy = jnp.log(by_class) + peak
    found = jnp.exp(log_probs) - jnp.exp(occupancy + loss[:, None] - log_probs)
    result = found * grad.reshape(-1)[:, None]
    if zero_infinity:
        result = jnp.where(jnp.isinf(loss)[:, None], 0.0, result)
    within = jnp.arange(time)[:, None] < problem.lengths
    return jnp.where(within[:, :, None], result, 0.0).astype(log_probs.dtype)


def _backward(problem: _Problem, emitted: jax.Array) -> jax.Array:
    """Log backward variables, (time, batch, width), each sample from its own last step."""
    time = emitted.shape[0]
    final = 2 * problem.sizes[:, None]
    ends = ((problem.place == final) | (problem.place == final - 1)) & problem.exists
    # A position may be left two ahead where the one it goes to may be reached so.
    skips = jnp.pad(problem.skips, ((0, 0), (0, 2)))[:, 2:]

    def step(row: jax.Array, item: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        now, at = item
        skipped = jnp.where(skips, _ahead(row, 2), _NEVER)
        inner = _sum(row, _ahead(row, 1), skipped) + now
        last = jnp.where(ends, now, _NEVER)
        here = jnp.where((at == problem.lengths - 1)[:, None], last, inner)
        here = jnp.where(problem.exists & (at < problem.lengths)[:, None], here, _NEVER)
        return here, here

    nothing = jnp.full(emitted.shape[1:], _NEVER, emitted.dtype)
    _, found = lax.scan(step, nothing, (emitted, jnp.arange(time)), reverse=True)
    return found
