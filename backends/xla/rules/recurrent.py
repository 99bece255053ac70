"""Fused LSTM and GRU cells: everything after the two products with the gates' weights.

PyTorch calls these for every device but the CPU. The workspace that the forward
operator keeps for its gradient has the contents of PyTorch's CUDA kernels (RNN.cu).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.xla.rules.registry import RuleContext, rule

Optional = jax.Array | None


def _preactivation(ctx: RuleContext, gates: jax.Array, bias: Optional) -> jax.Array:
    """Gates plus their bias, in the dtype to compute in."""
    wide = ctx.widened(gates)
    return wide if bias is None else wide + bias.astype(wide.dtype)


@rule("_thnn_fused_lstm_cell")
def _lstm_cell(
    ctx: RuleContext,
    input_gates: jax.Array,
    hidden_gates: jax.Array,
    cx: jax.Array,
    input_bias: Optional = None,
    hidden_bias: Optional = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``hy[B, H]``, ``cy[B, H]`` and the activated gates i, f, g, o as ``workspace[B, 4H]``."""
    gates = _preactivation(ctx, input_gates, input_bias)
    gates = gates + _preactivation(ctx, hidden_gates, hidden_bias)
    i, f, g, o = jnp.split(gates, 4, axis=1)
    i, f, g, o = lax.logistic(i), lax.logistic(f), lax.tanh(g), lax.logistic(o)
    cy = f * ctx.widened(cx) + i * g
    return o * lax.tanh(cy), cy, jnp.concatenate([i, f, g, o], 1)


def _lstm_gradient(
    ctx: RuleContext,
    grad_hy: Optional,
    grad_cy: Optional,
    cx: jax.Array,
    cy: jax.Array,
    workspace: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Gradients of the gates ``[B, 4H]`` and of ``cx``; an undefined gradient counts as zero."""
    i, f, g, o = jnp.split(ctx.widened(workspace), 4, axis=1)
    zero = jnp.zeros(cx.shape, i.dtype)
    by_hidden = zero if grad_hy is None else ctx.widened(grad_hy)
    by_cell = zero if grad_cy is None else ctx.widened(grad_cy)
    squashed = lax.tanh(ctx.widened(cy))
    grad_o = by_hidden * squashed * o * (1 - o)
    change = by_hidden * o * (1 - squashed * squashed) + by_cell
    grad_i = change * g * i * (1 - i)
    grad_f = change * ctx.widened(cx) * f * (1 - f)
    grad_g = change * i * (1 - g * g)
    return jnp.concatenate([grad_i, grad_f, grad_g, grad_o], 1), change * f


@rule("_thnn_fused_lstm_cell_backward_impl")
def _lstm_cell_backward_impl(
    ctx: RuleContext,
    grad_hy: Optional,
    grad_cy: Optional,
    cx: jax.Array,
    cy: jax.Array,
    workspace: jax.Array,
    has_bias: bool,
) -> tuple[Optional, Optional, Optional]:
    if grad_hy is None and grad_cy is None:
        return None, None, None
    gates, grad_cx = _lstm_gradient(ctx, grad_hy, grad_cy, cx, cy, workspace)
    return gates, grad_cx, jnp.sum(gates, 0) if has_bias else None


@rule("_thnn_fused_lstm_cell_backward")
def _lstm_cell_backward(ctx: RuleContext, *arguments: Any) -> tuple[Optional, ...]:
    gates, grad_cx, bias = _lstm_cell_backward_impl(ctx, *arguments)
    return gates, gates, grad_cx, bias, bias


@rule("_thnn_fused_gru_cell")
def _gru_cell(
    ctx: RuleContext,
    input_gates: jax.Array,
    hidden_gates: jax.Array,
    hx: jax.Array,
    input_bias: Optional = None,
    hidden_bias: Optional = None,
) -> tuple[jax.Array, jax.Array]:
    """``hy[B, H]``; reset, update, new gate, ``hx``, hidden part as ``workspace[B, 5H]``."""
    input_r, input_z, input_n = jnp.split(_preactivation(ctx, input_gates, input_bias), 3, axis=1)
    hidden_r, hidden_z, hidden_n = jnp.split(
        _preactivation(ctx, hidden_gates, hidden_bias), 3, axis=1
    )
    state = ctx.widened(hx)
    reset = lax.logistic(input_r + hidden_r)
    update = lax.logistic(input_z + hidden_z)
    new = lax.tanh(input_n + reset * hidden_n)
    hy = new + update * (state - new)
    return hy, jnp.concatenate([reset, update, new, state, hidden_n], 1)


@rule("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(
    ctx: RuleContext, grad_hy: jax.Array, workspace: jax.Array, has_bias: bool
) -> tuple[jax.Array, jax.Array, jax.Array, Optional, Optional]:
    """Gradients of both gates ``[B, 3H]``, of ``hx``, and of both biases if there are any."""
    grad = ctx.widened(grad_hy)
    reset, update, new, state, hidden_n = jnp.split(ctx.widened(workspace), 5, axis=1)
    grad_update = grad * (state - new) * (1 - update) * update
    grad_new = grad * (1 - update) * (1 - new * new)
    grad_reset = grad_new * hidden_n * (1 - reset) * reset
    by_input = jnp.concatenate([grad_reset, grad_update, grad_new], 1)
    by_hidden = jnp.concatenate([grad_reset, grad_update, grad_new * reset], 1)
    biases = (jnp.sum(by_input, 0), jnp.sum(by_hidden, 0)) if has_bias else (None, None)
    return by_input, by_hidden, grad * update, *biases
