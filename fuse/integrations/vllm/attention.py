"""vLLM's attention backend: what a step's batch is on the device, and a layer's two calls.

vLLM builds the batch on the host. Here it is padded to the step's ``Shape`` and goes to the device
in one copy; all layers of a group read its parts.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    MultipleOf,
)

from fuse.integrations.vllm import paged_attention
from fuse.integrations.vllm.batch import PagedBatch, host_batch, on_device
from fuse.integrations.vllm.buckets import Buckets


class PagedBackend(AttentionBackend):
    """Attention over pages that are tensors of the device."""

    supported_dtypes = [torch.float32, torch.bfloat16, torch.float16]
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16"]
    forward_includes_kv_cache_update = True

    @staticmethod
    def get_name() -> str:
        """What vLLM's log calls it."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[PagedImpl]:
        """The class of a layer's calls."""
        return PagedImpl

    @staticmethod
    def get_builder_cls() -> type[PagedBuilder]:
        """The class that makes a step's batch."""
        return PagedBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        """Tokens of a page: any number."""
        return [MultipleOf(1)]

    @classmethod
    def supports_sliding_window(cls) -> bool:
        """Layers that see the last tokens only are computed."""
        return True


def buckets_of(config: Any) -> Buckets:
    """The shapes of the steps of a server with vLLM's configuration ``config``."""
    return Buckets(
        most_tokens=config.scheduler_config.max_num_batched_tokens,
        most_texts=config.scheduler_config.max_num_seqs,
        longest=config.model_config.max_model_len,
        page=config.cache_config.block_size,
    )


class PagedBuilder(AttentionMetadataBuilder[PagedBatch]):
    """Makes a step's batch of what vLLM has prepared on the host."""

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.buckets = buckets_of(vllm_config)

    def build(
        self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False
    ) -> PagedBatch:
        """The batch of a step; its tensors of vLLM's are the host's."""
        common = common_attn_metadata
        starts = common.query_start_loc_cpu.numpy()[: common.num_reqs + 1]
        lengths = common.seq_lens.numpy()[: common.num_reqs]
        shape = self.buckets.shape(int(starts[-1]), common.max_query_len, int(lengths.max()))
        tables = common.block_table_tensor.numpy()[: common.num_reqs]
        slots = common.slot_mapping.numpy()[: starts[-1]]
        return on_device(shape, host_batch(shape, starts, lengths, tables, slots))


class PagedImpl(AttentionImpl[PagedBatch]):
    """One layer's attention."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
    ) -> None:
        if alibi_slopes is not None:
            raise NotImplementedError("attention with ALiBi slopes on the device tpu")
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"attention of type {attn_type} on the device tpu")
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = scale
        self.num_kv_heads = num_kv_heads or num_heads
        self.sliding_window = sliding_window
        self.kv_cache_dtype = kv_cache_dtype
        self.logits_soft_cap = logits_soft_cap or None
        self.shares_cache = kv_sharing_target_layer_name is not None

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: PagedBatch | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write the step's keys and values, then attend; the result is put in ``output``.

        Args:
            layer: vLLM's layer; not needed.
            query: ``[tokens, query heads, size]``.
            key: ``[tokens, heads, size]``.
            value: the same.
            kv_cache: ``[pages, tokens, heads, 2, size]``, written in place.
            attn_metadata: the step's batch; None where vLLM only asks how much memory is needed.
            output: ``[tokens, query heads, size]``.
            output_scale: of quantized outputs, which there are none of.
            output_block_scale: likewise.
        """
        if attn_metadata is None:
            return output.zero_()
        batch = attn_metadata
        if not self.shares_cache:
            paged_attention.write(kv_cache, batch.slots, key, value)
        tiles, width = batch.positions.shape
        rows = query if batch.queries is None else query[batch.queries]
        result = paged_attention.read(
            rows.view(tiles, width, self.num_heads, self.head_size),
            kv_cache,
            batch.tables,
            batch.positions,
            scale=self.scale,
            window=self.sliding_window,
            soft_cap=self.logits_soft_cap,
        ).reshape(tiles * width, self.num_heads, self.head_size)
        output.copy_(result if batch.back is None else result[batch.back])
        return output
