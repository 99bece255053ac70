"""tokamax's operators for PyTorch, which register by ``torch.tpu.pallas.jax_op``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fuse.torch_tpu import shim

NAMES = (
    "batched_rpa",
    "causal_conv1d_gated_delta_rule",
    "csa_gather",
    "deepseek_rope",
    "dsv4_compressor",
    "fused_moe",
    "grouped_lowrank_proj",
    "lightning_indexer",
    "linear_softmax_cross_entropy_loss",
    "masked_dense_mla",
    "mhc_fused_post_pre",
    "mhc_post",
    "mhc_pre",
    "proj_and_save_state",
    "ragged_dot",
    "ragged_gather",
    "ragged_gather_reduce",
    "router_topk",
    "sparse_mla",
    "splash_attention",
    "topk",
)


@pytest.fixture(scope="module")
def operators() -> Iterator[Any]:
    """A file of theirs imports ``torch_tpu``, and uses nothing of it."""
    with shim.installed():
        from tokamax.experimental.torch_tpu import ops  # noqa: PLC0415

        yield ops


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_registers_with_its_schema(operators: Any, name: str) -> None:
    one = getattr(operators, name)
    kernel = one._torch_tokamax_op
    schema = str(getattr(torch.ops.tokamax, one.jax_op_name).default._schema)
    assert kernel.name == f"tokamax::{one.jax_op_name}"
    assert "config=None" in schema and "Tensor? config" not in schema


def test_the_names_are_all_of_theirs(operators: Any) -> None:
    found = {name for name, one in vars(operators).items() if hasattr(one, "_torch_tokamax_op")}
    assert found == set(NAMES)
