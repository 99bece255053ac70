"""Fused LSTM and GRU cells: everything after the two products with the gates' weights.

PyTorch calls these for every device but the CPU. The workspace that the forward operator
keeps for its gradient has the contents of PyTorch's CUDA kernels (RNN.cu).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuse.backends.numpy.rules.registry import RuleContext, rule

Array = np.ndarray
Optional = Array | None


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _preactivation(ctx: RuleContext, gates: Array, bias: Optional) -> Array:
    """Gates plus their bias, in the dtype to compute in."""
    wide = ctx.widened(gates)
    return wide if bias is None else wide + bias.astype(wide.dtype)


@rule("_thnn_fused_lstm_cell")
def _lstm_cell(
    ctx: RuleContext,
    input_gates: Array,
    hidden_gates: Array,
    cx: Array,
    input_bias: Optional = None,
    hidden_bias: Optional = None,
) -> tuple[Array, Array, Array]:
    """``hy[B, H]``, ``cy[B, H]`` and the activated gates i, f, g, o as ``workspace[B, 4H]``."""
    gates = _preactivation(ctx, input_gates, input_bias)
    gates = gates + _preactivation(ctx, hidden_gates, hidden_bias)
    i, f, g, o = np.split(gates, 4, axis=1)
    i, f, g, o = _logistic(i), _logistic(f), np.tanh(g), _logistic(o)
    cy = f * ctx.widened(cx) + i * g
    return o * np.tanh(cy), cy, np.concatenate([i, f, g, o], 1)


@rule("_thnn_fused_lstm_cell_backward_impl")
def _lstm_cell_backward_impl(
    ctx: RuleContext,
    grad_hy: Optional,
    grad_cy: Optional,
    cx: Array,
    cy: Array,
    workspace: Array,
    has_bias: bool,
) -> tuple[Optional, Optional, Optional]:
    """Gradients of the gates ``[B, 4H]``, of ``cx`` and of a bias.

    An undefined gradient of a result counts as zero; without any, nothing has a gradient.
    """
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = np.split(ctx.widened(workspace), 4, axis=1)
    by_hidden = np.zeros_like(i) if grad_hy is None else ctx.widened(grad_hy)
    by_cell = np.zeros_like(i) if grad_cy is None else ctx.widened(grad_cy)
    squashed = np.tanh(ctx.widened(cy))
    grad_o = by_hidden * squashed * o * (1 - o)
    change = by_hidden * o * (1 - squashed * squashed) + by_cell
    grad_i = change * g * i * (1 - i)
    grad_f = change * ctx.widened(cx) * f * (1 - f)
    grad_g = change * i * (1 - g * g)
    gates = np.concatenate([grad_i, grad_f, grad_g, grad_o], 1)
    return gates, change * f, gates.sum(axis=0) if has_bias else None


@rule("_thnn_fused_lstm_cell_backward")
def _lstm_cell_backward(ctx: RuleContext, *arguments: Any) -> tuple[Optional, ...]:
    gates, grad_cx, bias = _lstm_cell_backward_impl(ctx, *arguments)
    return gates, gates, grad_cx, bias, bias


@rule("_thnn_fused_gru_cell")
def _gru_cell(
    ctx: RuleContext,
    input_gates: Array,
    hidden_gates: Array,
    hx: Array,
    input_bias: Optional = None,
    hidden_bias: Optional = None,
) -> tuple[Array, Array]:
    """``hy[B, H]``; reset, update, new gate, ``hx``, hidden part as ``workspace[B, 5H]``."""
    input_r, input_z, input_n = np.split(_preactivation(ctx, input_gates, input_bias), 3, axis=1)
    hidden_r, hidden_z, hidden_n = np.split(
        _preactivation(ctx, hidden_gates, hidden_bias), 3, axis=1
    )
    state = ctx.widened(hx)
    reset = _logistic(input_r + hidden_r)
    update = _logistic(input_z + hidden_z)
    new = np.tanh(input_n + reset * hidden_n)
    hy = new + update * (state - new)
    return hy, np.concatenate([reset, update, new, state, hidden_n], 1)


@rule("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(
    ctx: RuleContext, grad_hy: Array, workspace: Array, has_bias: bool
) -> tuple[Array, Array, Array, Optional, Optional]:
    """Gradients of both gates ``[B, 3H]``, of ``hx``, and of both biases if there are any."""
    grad = ctx.widened(grad_hy)
    reset, update, new, state, hidden_n = np.split(ctx.widened(workspace), 5, axis=1)
    grad_update = grad * (state - new) * (1 - update) * update
    grad_new = grad * (1 - update) * (1 - new * new)
    grad_reset = grad_new * hidden_n * (1 - reset) * reset
    by_input = np.concatenate([grad_reset, grad_update, grad_new], 1)
    by_hidden = np.concatenate([grad_reset, grad_update, grad_new * reset], 1)
    biases = (by_input.sum(axis=0), by_hidden.sum(axis=0)) if has_bias else (None, None)
    return by_input, by_hidden, grad * update, *biases
