"""CPU kernels of the GRU cell that PyTorch fuses on every device but the CPU; the LSTM's is the
native core's.

The device records them as one operation, for which the CPU has none. A call that runs on the host
all the same, because the shapes at its place keep changing, needs one. The workspace that they
keep for the gradient is laid out as in PyTorch's CUDA kernels (RNN.cu), as that of the backends'
rules is: a cell and its gradient may run at different places.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuse.device.host_attention import wide

Optional = torch.Tensor | None


def gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hx: torch.Tensor,
    input_bias: Optional = None,
    hidden_bias: Optional = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``hy[B, H]``; reset, update, new gate, ``hx``, hidden part as ``workspace[B, 5H]``."""
    input_r, input_z, input_n = _biased(input_gates, input_bias).chunk(3, 1)
    hidden_r, hidden_z, hidden_n = _biased(hidden_gates, hidden_bias).chunk(3, 1)
    state = wide(hx)
    reset, update = (input_r + hidden_r).sigmoid(), (input_z + hidden_z).sigmoid()
    new = torch.addcmul(input_n, reset, hidden_n).tanh()
    hy = torch.lerp(new, state, update)
    return hy.to(hx.dtype), torch.cat([reset, update, new, state, hidden_n], 1).to(hx.dtype)


def gru_cell_backward(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Optional, Optional]:
    """Gradients of both gates ``[B, 3H]``, of ``hx[B, H]``, and of both biases if there are any."""
    grad, dtype = wide(grad_hy), workspace.dtype
    reset, update, new, state, hidden_n = wide(workspace).chunk(5, 1)
    grad_update = grad * (state - new) * (1 - update) * update
    grad_new = grad * (1 - update) * (1 - new * new)
    grad_reset = grad_new * hidden_n * (1 - reset) * reset
    by_input = torch.cat([grad_reset, grad_update, grad_new], 1).to(dtype)
    by_hidden = torch.cat([grad_reset, grad_update, grad_new * reset], 1).to(dtype)
    biases = (by_input.sum(0), by_hidden.sum(0)) if has_bias else (None, None)
    return by_input, by_hidden, (grad * update).to(dtype), *biases


def _biased(gates: torch.Tensor, bias: Optional) -> torch.Tensor:
    return wide(gates) if bias is None else wide(gates) + wide(bias)


KERNELS: dict[str, Callable[..., object]] = {
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
