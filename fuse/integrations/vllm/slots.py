"""Where in the cache a step's tokens go: computed on the host, where vLLM has a Triton kernel."""

from __future__ import annotations

import torch


def slot_mapping(
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    block_table_stride: int,
    slot_mapping: torch.Tensor,
    KV_CACHE_BLOCK_SIZE: int,  # noqa: N803
    TOTAL_CP_WORLD_SIZE: int = 1,  # noqa: N803
    TOTAL_CP_RANK: int = 0,  # noqa: N803
    CP_KV_CACHE_INTERLEAVE_SIZE: int = 1,  # noqa: N803
    PAD_ID: int = -1,  # noqa: N803
    BLOCK_SIZE: int = 1024,  # noqa: N803
) -> None:
    """Write the first ``num_tokens`` of ``slot_mapping``, and ``PAD_ID`` behind them.

    The names are those of vLLM's kernel; all tensors are the host's.

    Args:
        num_tokens: tokens of the step.
        max_num_tokens: of any step: the size of ``slot_mapping``.
        query_start_loc: ``[R + 1]``: where each text's tokens begin, and the end.
        positions: ``[num_tokens]``: each token's place in its text.
        block_table: ``[R or more, block_table_stride]``: each text's pages.
        block_table_stride: pages that a row of it has room for.
        slot_mapping: ``[max_num_tokens]``, written in place.
        KV_CACHE_BLOCK_SIZE: tokens of a page.
        TOTAL_CP_WORLD_SIZE: ranks that share a text's cache: one.
        TOTAL_CP_RANK: not needed.
        CP_KV_CACHE_INTERLEAVE_SIZE: not needed.
        PAD_ID: what stands for no place.
        BLOCK_SIZE: of the kernel; not needed.
    """
    if TOTAL_CP_WORLD_SIZE != 1:
        raise NotImplementedError("context parallel decoding on the device tpu")
    starts = query_start_loc.numpy()
    end = int(starts[-1])
    owner = torch.repeat_interleave(torch.from_numpy(starts[1:] - starts[:-1]))
    places = positions[:end]
    pages = block_table[owner, places // KV_CACHE_BLOCK_SIZE]
    slot_mapping[:end] = pages.long() * KV_CACHE_BLOCK_SIZE + places % KV_CACHE_BLOCK_SIZE
    slot_mapping[end:max_num_tokens].fill_(PAD_ID)
