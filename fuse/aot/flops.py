"""Floating-point operations of a step's products, of which a model's utilisation is a share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch.utils.flop_counter import flop_registry

from fuse.trace.bind import bind, named
from fuse.trace.functional import base_name
from fuse.trace.node import Node, TensorArg

_ATTENTION: Final = "_scaled_dot_product_"


def of_products(nodes: Iterable[Node]) -> int:
    """Two for each multiplication of products, convolutions and attention; nothing for the rest.

    By the formulas of PyTorch's own counter, ``torch.utils.flop_counter``. Attention counts two
    products forward and four backward, half where it is causal, as MaxText does since 2025. What a
    program computes again for the backward pass, as activation checkpointing does, counts again.
    """
    return sum(map(_of, nodes))


def _of(node: Node) -> int:
    name = base_name(node.target)
    if name.startswith(_ATTENTION):
        return _of_attention(node)
    formula: Callable[..., int] | None = flop_registry.get(getattr(torch.ops.aten, name, None))
    if formula is None or not node.parts():
        return 0
    made = [torch.empty(one.view.shape, device="meta") for one in node.parts()]
    positional, _ = bind(node)
    kept = [made[slot] if slot is not None else None for slot in node.slots]
    result = kept[0] if len(kept) == 1 else kept
    return int(formula(*(_argument(node, one) for one in positional), out_val=result))


def _of_attention(node: Node) -> int:
    arguments = named(node)
    query, key = (_shape(node, arguments[name]) for name in ("query", "key"))
    products = 4 if "backward" in node.target else 2
    whole = 2 * products * math.prod(query) * key[-2]
    return whole // 2 if arguments.get("is_causal") is True else whole


def _shape(node: Node, argument: TensorArg) -> tuple[int, ...]:
    return node.operands[argument.index].view.shape


def _argument(node: Node, value: Any) -> Any:
    if isinstance(value, TensorArg):
        return torch.empty(node.operands[value.index].view.shape, device="meta")
    if isinstance(value, tuple):
        return [_argument(node, one) for one in value]
    return value
