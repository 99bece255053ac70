"""vLLM's model runner: batches are prepared on the host, padded, and computed on the device.

Of vLLM's runner all bookkeeping stays, on tensors of the host. What goes to the device are the
packed integers of a step; what comes back are its tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from vllm.distributed import get_pp_group
from vllm.v1.outputs import SamplerOutput
from vllm.v1.utils import CpuGpuBuffer
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.utils import bind_kv_cache

from fuse.integrations.vllm import attention, sampling, warm_up
from fuse.integrations.vllm.buckets import Shape

HOST = torch.device("cpu")


class TpuModelRunner(GPUModelRunner):
    """Runs steps of a model that is on the device."""

    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        # vLLM's buffers of a step are the host's: there they are filled, and never read elsewhere.
        super().__init__(vllm_config, HOST)
        self.execute_model_state: Any = None
        self.accelerator = device
        self.buckets = attention.buckets_of(vllm_config)
        self.vocabulary = self.model_config.get_vocab_size()
        self.host_sampler: Any = self.sampler
        self.sampler: Any = sampling.DeviceSampler(logprobs_mode=self.model_config.logprobs_mode)
        self._one_copy_of_buffers()
        self._inputs: tuple[torch.Tensor, ...] | None = None

    def _one_copy_of_buffers(self) -> None:
        batch = self.input_batch
        tables = batch.block_table.block_tables
        for owner in (self, *tables):
            for buffer in vars(owner).values():
                if isinstance(buffer, CpuGpuBuffer):
                    buffer.gpu = buffer.cpu
        for name, tensor in list(vars(batch).items()):
            there = name.removesuffix("_cpu_tensor")
            if there != name and isinstance(getattr(batch, there, None), torch.Tensor):
                setattr(batch, there, tensor)

    def may_reinitialize_input_batch(self, kv_cache_config: Any) -> None:
        """As vLLM does, when it knows how many pages there are."""
        super().may_reinitialize_input_batch(kv_cache_config)
        self._one_copy_of_buffers()

    def initialize_kv_cache_tensors(
        self, kv_cache_config: Any, kernel_block_sizes: list[int], **_: Any
    ) -> dict[str, torch.Tensor]:
        """A tensor of pages for each layer: ``[pages, tokens, heads, 2, size]``, zeros."""
        caches: dict[str, torch.Tensor] = {}
        for group in kv_cache_config.kv_cache_groups:
            for name in group.layer_names:
                if name in self.shared_kv_cache_layers:
                    continue
                spec = group.kv_cache_spec
                spec = getattr(spec, "kv_cache_specs", {}).get(name, spec)
                caches[name] = torch.zeros(
                    kv_cache_config.num_blocks,
                    spec.block_size,
                    spec.num_kv_heads,
                    2,
                    spec.head_size,
                    dtype=spec.dtype,
                    device=self.accelerator,
                )
        for name, owner in self.shared_kv_cache_layers.items():
            caches[name] = caches[owner]
        bind_kv_cache(caches, self.compilation_config.static_forward_context, self.kv_caches)
        return caches

    def _init_kv_zero_meta(self) -> None:
        """Pages hold finite numbers from the start, and what is masked has no weight."""

    def profile_run(self, randomize_inputs: bool = False) -> None:
        """Nothing: how much memory a step needs is not measured ahead."""

    def load_lora_model(self, model: Any, vllm_config: Any, device: torch.device) -> Any:
        """Adapters are the device's, as the model is."""
        return super().load_lora_model(model, vllm_config, self.accelerator)

    def _set_active_loras(
        self, prompt_lora_mapping: Any, token_lora_mapping: Any, *args: Any, **kwargs: Any
    ) -> None:
        tokens, texts = len(token_lora_mapping), len(prompt_lora_mapping)
        shape = self.buckets.shape(tokens, 1 if tokens == texts else 2, 1)
        super()._set_active_loras(
            (*prompt_lora_mapping, *[0] * (shape.rows - texts)),
            (*token_lora_mapping, *[0] * (shape.tokens - tokens)),
            *args,
            **kwargs,
        )

    def _sync_device(self) -> None:
        torch.get_device_module("tpu").synchronize()

    def _to_list(self, sampled_token_ids: torch.Tensor) -> list[list[int]]:
        tokens: list[list[int]] = sampled_token_ids.tolist()
        return tokens

    # A step, in the order in which vLLM calls.

    def _prepare_inputs(
        self, scheduler_output: Any, num_scheduled_tokens: np.ndarray
    ) -> tuple[Any, Any, int]:
        last, drafts, most = super()._prepare_inputs(scheduler_output, num_scheduled_tokens)
        tokens = scheduler_output.total_num_scheduled_tokens
        shape = self.buckets.shape(tokens, int(num_scheduled_tokens.max()), 1)
        return self._send(shape, tokens, last.numpy()), drafts, most

    def _send(self, shape: Shape, tokens: int, last: np.ndarray) -> torch.Tensor:
        """Copy a step's tokens to the device, padded; return which of them tokens follow."""
        packed = np.zeros(2 * shape.tokens + shape.rows, np.int32)
        packed[:tokens] = self.input_ids.np[:tokens]
        packed[shape.tokens : shape.tokens + tokens] = self.positions.numpy()[:tokens]
        packed[2 * shape.tokens : 2 * shape.tokens + len(last)] = last
        there = torch.from_numpy(packed).to(self.accelerator)
        parts: tuple[torch.Tensor, ...]
        parts = there.split([shape.tokens, shape.tokens, shape.rows])
        self._inputs = parts[:2]
        return parts[2]

    def _determine_batch_execution_and_padding(
        self, num_tokens: int, *args: Any, max_num_scheduled_tokens: int, **kwargs: Any
    ) -> tuple[Any, ...]:
        mode, batch, *rest = super()._determine_batch_execution_and_padding(
            num_tokens, *args, max_num_scheduled_tokens=max_num_scheduled_tokens, **kwargs
        )
        padded = self.buckets.shape(num_tokens, max_num_scheduled_tokens, 1).tokens
        return (mode, dataclasses.replace(batch, num_tokens=padded), *rest)

    def _model_forward(
        self,
        input_ids: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **model_kwargs: Any,
    ) -> Any:
        assert self._inputs is not None
        ids, places = self._inputs
        return super()._model_forward(
            ids if get_pp_group().is_first_rank else None,
            places,
            intermediate_tensors,
            None,
            **model_kwargs,
        )

    def sample_tokens(self, grammar_output: Any) -> Any:
        """As vLLM does; what a grammar forbids is masked on the device."""
        state = self.execute_model_state
        # What draws tokens is a program of its own: else there were one for every shape of a step.
        self._sync_device()
        if grammar_output is not None and state is not None:
            logits = self._masked(grammar_output, state.logits)
            self.execute_model_state = state._replace(logits=logits)
        return super().sample_tokens(None)

    def _masked(self, grammar_output: Any, logits: torch.Tensor) -> torch.Tensor:
        number = self.input_batch.req_id_to_index
        asked = enumerate(grammar_output.structured_output_request_ids)
        pairs = [(number[name], line) for line, name in asked if name in number]
        rows, lines = (list(part) for part in zip(*pairs, strict=True))
        return sampling.allowed(logits, rows, grammar_output.grammar_bitmask[lines])

    def _sample(self, logits: torch.Tensor, spec_decode_metadata: Any) -> SamplerOutput:
        metadata = self.input_batch.sampling_metadata
        texts = self.input_batch.num_reqs
        if not sampling.on_device(metadata):
            return self.host_sampler(logits=logits.cpu()[:texts], sampling_metadata=metadata)
        there = sampling.padded(metadata, len(logits), self.vocabulary)
        return sampling.to_host(self.sampler(logits=logits, sampling_metadata=there), texts)

    # Before the first request.

    @torch.inference_mode()
    def warm_up(self) -> int:
        """Run a step of every shape that the server can need; return how many there are."""
        groups = len(self.kv_cache_config.kv_cache_groups)
        shapes = set()
        # What loading has left open is no part of the first step.
        self._sync_device()
        for shape, step in warm_up.steps(self.buckets, groups):
            shapes.add(shape)
            self.execute_model(step)
            self.sample_tokens(None)
            self.execute_model(warm_up.finished(step))
        return len(shapes)
