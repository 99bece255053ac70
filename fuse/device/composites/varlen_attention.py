"""Attention over sequences that lie behind one another: ``torch.nn.attention.varlen``.

One attention over all of them, whose bias keeps every sequence to itself. All scores are computed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fuse.device.composites.attention import gradients
from fuse.device.composites.registry import kernel
from fuse.device.composites.segment import segment_of_each
from fuse.errors import UnsupportedError, describe
from fuse.trace.source import user_line


@kernel("_flash_attention_forward")
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Logarithms of ``[H, T]`` for sequences behind one another, else ``[B, H, L]``."""
    for name, given in (("alibi_slopes", alibi_slopes), ("block_table", block_table)):
        if given is not None:
            raise UnsupportedError(
                describe(
                    f"attention with {name} is not supported",
                    operator="aten::_flash_attention_forward",
                    hint="torch.nn.attention.flex_attention takes any bias and pages",
                    source=user_line(),
                )
            )
    window = (window_size_left, window_size_right)
    bias, rows = _bias(query, key, (cum_seq_q, cum_seq_k), is_causal, window, seqused_k)
    found = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        *map(_heads_first, (query, key, value)), bias, dropout_p, scale=scale
    )
    output, logarithm = found[0].transpose(1, 2), found[1]
    if cum_seq_q is not None:
        output, logarithm = output[0], logarithm[0]
        output = torch.where(rows[:, None, None], output, 0)  # of no sequence
    state = torch.zeros(2, dtype=torch.uint64, device=query.device)
    return output.contiguous(), logarithm.float(), state, state.clone(), query.new_empty(0)


@kernel("_flash_attention_backward")
def _attend_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    window = (window_size_left, window_size_right)
    bias, rows = _bias(query, key, (cum_seq_q, cum_seq_k), is_causal, window, None)
    if cum_seq_q is not None:
        grad_out = torch.where(rows[:, None, None], grad_out, 0)
        # A row of no sequence has weights of 0 / 0: with this sum they are 0.
        logsumexp = torch.where(rows, logsumexp, torch.inf)[None]
    grads = gradients(
        _heads_first(grad_out),
        _heads_first(query),
        _heads_first(key),
        _heads_first(value),
        bias,
        _heads_first(out),
        logsumexp,
        (rng_state[0], rng_state[1]),
        dropout_p,
        scale=scale,
    )
    query_grad, key_grad, value_grad = (one.transpose(1, 2) for one in grads[:3])
    if cum_seq_q is None:
        return query_grad, key_grad, value_grad
    return query_grad[0], key_grad[0], value_grad[0]


def _heads_first(value: Tensor) -> Tensor:
    """``[T, H, E]`` or ``[B, L, H, E]`` as ``[B, H, L, E]``."""
    return (value if value.dim() == 4 else value[None]).transpose(1, 2)


def _bias(
    query: Tensor,
    key: Tensor,
    cumulative: tuple[Tensor | None, Tensor | None],
    causal: bool,
    window: tuple[int | None, int | None],
    used: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """What is added to the scores, ``[1, 1, T, S]``, and which queries see any key, ``[T]``.

    The last query of a sequence stands beside the last key, as in PyTorch's kernels for CUDA.
    """
    ends = [
        torch.tensor([0, one.size(-3)], device=query.device) if sums is None else sums.long()
        for one, sums in zip((query, key), cumulative, strict=True)
    ]
    row, at, length = _places(ends[0], query.size(-3))
    column, place, _ = _places(ends[1], key.size(-3))
    sizes = ends[1].diff() if used is None else used.long()
    known = sizes[row.clamp(max=sizes.numel() - 1)]
    seen = (row[:, None] == column) & (place < known[:, None]) & (row < sizes.numel())[:, None]
    beside = (at + known - length)[:, None]
    left, right = (None if size is None or size < 0 else size for size in window)
    right = 0 if causal else right
    if right is not None:
        seen &= place <= beside + right
    if left is not None:
        seen &= place >= beside - left
    bias = torch.where(seen, 0.0, -torch.inf).to(query.dtype)
    return bias[None, None], seen.any(1)


def _places(ends: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The sequence of each position, its place in it, and the sequence's length."""
    sequence, positions = segment_of_each(ends[1:], size)
    known = sequence.clamp(max=ends.numel() - 2)
    start = ends[known]
    return sequence, positions - start, ends[known + 1] - start
