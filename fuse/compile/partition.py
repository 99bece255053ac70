"""Splits AOTAutograd's joint graph into forward and backward."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition

_RECOMPUTED = "recompute"  # where PyTorch's activation checkpoints mark a node


def partition(
    joint: torch.fx.GraphModule, inputs: Any, **options: Any
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """PyTorch's minimal cut, in which random calls are kept for the backward pass.

    Under an activation checkpoint PyTorch would have them drawn again, and the generator's state go
    from one graph to the other: for the devices that it knows by name.
    """
    for node in joint.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            node.meta.pop(_RECOMPUTED, None)
            for user in node.users:
                if user.target is operator.getitem:
                    user.meta.pop(_RECOMPUTED, None)
    return min_cut_rematerialization_partition(joint, inputs, **options)
