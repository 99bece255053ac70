"""The products with LoRA's matrices, at the sizes of a padded step."""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU


class LoraProducts(PunicaWrapperCPU):
    """vLLM's products in PyTorch's operators; which adapter a token has is data, not a program.

    Each token takes the matrices of its adapter. One without an adapter has the number -1, which as
    an index is the last adapter's: its product is set to zero.
    """

    def update_metadata(
        self,
        mapping: Any,
        lora_index_to_id: list[int | None],
        max_loras: int,
        vocab_size: int,
        **kwargs: Any,
    ) -> None:
        """Take which adapter each token has.

        Args:
            mapping: vLLM's, of padded length.
            lora_index_to_id: the adapters that are loaded.
            max_loras: how many can be.
            vocab_size: of the model.
            kwargs: of other devices' kernels.
        """
        self._update_base_metadata(mapping, lora_index_to_id, max_loras, vocab_size)
        # By token and not by text: how long each text is would be part of the program.
        self.is_prefill = False

    def _shrink_decode(
        self, y: torch.Tensor, x: torch.Tensor, w_t_all: torch.Tensor, scale: float
    ) -> None:
        super()._shrink_decode(y, x, w_t_all, scale)
        y.mul_((self.token_lora_indices >= 0)[:, None])
