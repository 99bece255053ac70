"""What computes FlexAttention on the device: its attention operator, or PyTorch's own definition.

A call that leaves scores as they are is attention under a mask, which the device has kernels for;
where the mask is made of indices alone, a TPU's skip its empty blocks.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._higher_order_ops.flex_attention import (
    _permute_strides,
    sdpa_dense,
    sdpa_dense_backward,
)

from fuse.device.composites.attention import gradients

LN2 = math.log(2)
"""FlexAttention's logarithms are those of base 2."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    *captured: tuple[Any, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """The higher-order operator ``flex_attention``: its arguments, and what it returns.

    ``captured`` is what the modification of scores captures, and that of the mask. The largest
    scores, the last result, are not computed where nobody asked for them: memory that nothing was
    written to.
    """
    plain = _is_plain(query, key, value, score_mod) and not kernel_options.get("OUTPUT_MAX", True)
    if not plain:
        found: tuple[Tensor, Tensor, Tensor] = sdpa_dense(
            query, key, value, score_mod, block_mask, scale, kernel_options, *captured
        )
        return found
    mask = _mask(query, key, block_mask[-1], *captured[1:])
    made = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, mask, scale=scale
    )
    output, logarithm = made[0], made[1].view(query.shape[:-1]).float()
    if mask is not None:
        # The operator says 0 of those that see nothing, as PyTorch's CPU kernel does.
        logarithm = torch.where(mask.any(-1), logarithm, -torch.inf)
    return _laid(output, query), logarithm / LN2, torch.empty_like(logarithm)


def attend_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    grad_out: Tensor | None,
    grad_logsumexp: Tensor | None,
    fw_graph: Any,
    joint_graph: Any,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    *captured: tuple[Any, ...],
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor | None, ...]]:
    """The higher-order operator ``flex_attention_backward``, likewise."""
    plain = _is_plain(query, key, value, fw_graph) and grad_logsumexp is None
    if not plain or grad_out is None:
        rest = (fw_graph, joint_graph, block_mask, scale, kernel_options, *captured)
        found: tuple[Tensor, Tensor, Tensor, tuple[Tensor | None, ...]] = sdpa_dense_backward(
            query, key, value, out, logsumexp, grad_out, grad_logsumexp, *rest
        )
        return found
    mask = _mask(query, key, block_mask[-1], *captured[1:])
    # Of queries that see nothing, whose weights are exp(-inf - 0) so.
    logsumexp = logsumexp.masked_fill(logsumexp == -torch.inf, 0)
    tensors = (query, key, value)
    logarithm = (logsumexp * LN2).flatten(0, 1)
    state = [torch.zeros((), dtype=torch.int64, device=query.device)] * 2
    grads = gradients(grad_out, *tensors, mask, out, logarithm, state, scale=scale)
    laid = [_laid(made, like) for made, like in zip(grads[:3], tensors, strict=True)]
    return laid[0], laid[1], laid[2], tuple(None for _ in captured[0])


def _is_plain(query: Tensor, key: Tensor, value: Tensor, score_mod: Any) -> bool:
    """Whether it is attention as the device's operator computes it."""
    return (
        query.dtype == key.dtype == value.dtype
        and query.dtype != torch.float64  # which PyTorch decomposes
        and query.shape[0] == key.shape[0]
        and 0 not in query.shape
        and 0 not in key.shape
        and isinstance(score_mod, torch.fx.GraphModule)
        and _returns_scores(score_mod)
    )


def _returns_scores(module: torch.fx.GraphModule) -> bool:
    """Whether a graph returns the first of its arguments."""
    returned = module.graph.output_node().args[0]
    if isinstance(returned, (tuple, list)) and len(returned) == 1:
        (returned,) = returned
    return returned is next(iter(module.graph.nodes))


def _mask(
    query: Tensor, key: Tensor, mask_mod: Any, captured: tuple[Any, ...] = ()
) -> Tensor | None:
    """What queries see: booleans ``[1 or B, 1 or H, L, S]``; ``None`` where that is everything."""
    # Lazily: it is the program's import of that module which imports this one.
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv  # noqa: PLC0415

    used = [True] * 4
    if isinstance(mask_mod, torch.fx.GraphModule):
        if _is_everything(mask_mod):
            return None
        arguments = list(mask_mod.graph.find_nodes(op="placeholder"))[:4]
        used = [bool(one.users) for one in arguments]
    sizes = (*query.shape[:2], query.shape[2], key.shape[2])
    kept = [size if used[at] or at > 1 else 1 for at, size in enumerate(sizes)]
    indices = [torch.arange(size, device=query.device) for size in kept]
    seen = _vmap_for_bhqkv(mask_mod, prefix=(), suffix=(None,) * len(captured))
    with TransformGetItemToIndex():
        found: Tensor = seen(*indices, *captured)
    return found


def _is_everything(module: torch.fx.GraphModule) -> bool:
    """Whether it is the mask of a call that was given none."""
    made = [one for one in module.graph.nodes if one.op not in ("placeholder", "output")]
    return len(made) == 1 and str(made[0].target).startswith(("aten.new_ones", "new_ones"))


def _laid(made: Tensor, like: Tensor) -> Tensor:
    """``made`` with its dimensions in memory in the order of those of ``like``."""
    return made if _order(made) == _order(like) else _permute_strides(made, like.stride())


def _order(tensor: Tensor) -> list[int]:
    return sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
