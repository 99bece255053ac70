"""Rules of fused recurrent cells against PyTorch's cells on CPU, forward and through autograd."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext
from tests.backends.rule_harness import RULES, TOLERANCE, to_array, to_tensor, unreached

BATCH, SIZE, INPUT = 3, 5, 4
CONTEXT = RuleContext(out=(), result_type="float32")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def emit(name: str, *args: Any) -> list[Any]:
    """Run a rule on tensors, ``None`` and plain values."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]

    def call(arrays: list[jax.Array]) -> Any:
        left = iter(arrays)
        return RULES[name](
            CONTEXT, *(next(left) if isinstance(arg, torch.Tensor) else arg for arg in args)
        )

    with jax.enable_x64(True):
        results = jax.jit(call)([to_array(tensor) for tensor in tensors])
        return [None if result is None else to_tensor(result) for result in results]


def close(result: torch.Tensor, want: torch.Tensor | None) -> None:
    assert want is not None
    rtol, atol = TOLERANCE.get(want.dtype, (1e-7, 1e-7))
    torch.testing.assert_close(result.to(want.dtype), want.detach(), rtol=rtol, atol=2 * atol)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("used", ("both", "hy", "cy"))
@pytest.mark.parametrize("bias", (True, False))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lstm(dtype: torch.dtype, bias: bool, used: str) -> None:
    cell = torch.nn.LSTMCell(INPUT, SIZE, bias=bias).to(dtype)
    x = torch.randn(BATCH, INPUT, dtype=dtype, requires_grad=True)
    hx = torch.randn(BATCH, SIZE, dtype=dtype, requires_grad=True)
    cx = torch.randn(BATCH, SIZE, dtype=dtype, requires_grad=True)
    hy, cy = cell(x, (hx, cx))
    biases = (cell.bias_ih, cell.bias_hh) if bias else (None, None)
    gates = (x @ cell.weight_ih.T, hx @ cell.weight_hh.T)
    result_hy, result_cy, workspace = emit("_thnn_fused_lstm_cell", *gates, cx, *biases)
    assert workspace.shape == (BATCH, 4 * SIZE)
    close(result_hy, hy)
    close(result_cy, cy)

    grad_hy = torch.randn_like(hy) if used != "cy" else None
    grad_cy = torch.randn_like(cy) if used != "hy" else None
    heads = [(out, grad) for out, grad in ((hy, grad_hy), (cy, grad_cy)) if grad is not None]
    torch.autograd.backward([out for out, _ in heads], [grad for _, grad in heads])
    saved = (grad_hy, grad_cy, cx, result_cy.to(dtype), workspace.to(dtype), bias)
    gates_1, grad_cx, grad_bias = emit("_thnn_fused_lstm_cell_backward_impl", *saved)
    close(grad_cx, cx.grad)
    close(gates_1.to(dtype) @ cell.weight_ih, x.grad)
    close(gates_1.to(dtype).T @ hx, cell.weight_hh.grad)
    if bias:
        close(grad_bias, cell.bias_ih.grad)
    else:
        assert grad_bias is None
    five = emit("_thnn_fused_lstm_cell_backward", *saved)
    for result, want in zip(five, (gates_1, gates_1, grad_cx, grad_bias, grad_bias), strict=True):
        assert want is None if result is None else torch.equal(result, want)


def test_lstm_without_gradients() -> None:
    empty = torch.zeros(BATCH, SIZE)
    saved = (None, None, empty, empty, torch.zeros(BATCH, 4 * SIZE), True)
    assert emit("_thnn_fused_lstm_cell_backward_impl", *saved) == [None] * 3
    assert emit("_thnn_fused_lstm_cell_backward", *saved) == [None] * 5


@pytest.mark.parametrize("bias", (True, False))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gru(dtype: torch.dtype, bias: bool) -> None:
    cell = torch.nn.GRUCell(INPUT, SIZE, bias=bias).to(dtype)
    x = torch.randn(BATCH, INPUT, dtype=dtype, requires_grad=True)
    hx = torch.randn(BATCH, SIZE, dtype=dtype, requires_grad=True)
    hy = cell(x, hx)
    biases = (cell.bias_ih, cell.bias_hh) if bias else (None, None)
    gates = (x @ cell.weight_ih.T, hx @ cell.weight_hh.T)
    result, workspace = emit("_thnn_fused_gru_cell", *gates, hx, *biases)
    assert workspace.shape == (BATCH, 5 * SIZE)
    close(result, hy)

    grad = torch.randn_like(hy)
    hy.backward(grad)
    results = emit("_thnn_fused_gru_cell_backward", grad, workspace.to(dtype), bias)
    by_input, by_hidden, grad_hx, bias_ih, bias_hh = results
    close(by_input.to(dtype) @ cell.weight_ih, x.grad)
    close(by_hidden.to(dtype) @ cell.weight_hh + grad_hx.to(dtype), hx.grad)
    if bias:
        close(bias_ih, cell.bias_ih.grad)
        close(bias_hh, cell.bias_hh.grad)
    else:
        assert bias_ih is None and bias_hh is None


def test_every_rule_is_reached() -> None:
    assert unreached("recurrent") == set()
