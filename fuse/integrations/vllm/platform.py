"""What vLLM asks of a device: names, memory, and which classes do the work."""

from __future__ import annotations

import os
from typing import Any

import torch
from vllm.platforms.interface import Platform, PlatformEnum

PACKAGE = "fuse.integrations.vllm"
PAGE = 32
"""Tokens of a page, unless vLLM's user says otherwise."""


class TpuPlatform(Platform):
    """The device ``tpu``, whatever XLA computes with: the CPU, a GPU or a TPU."""

    _enum = PlatformEnum.OOT
    device_name = "tpu"
    device_type = "tpu"
    dispatch_key = "PrivateUse1"
    dist_backend = "tpu_dist"
    simple_compile_backend = "tpu"

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        """The first is taken where a checkpoint's own is none of them."""
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        """All of ``supported_dtypes`` are computed everywhere."""

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """The device's name, as XLA has it."""
        return str(torch.get_device_module("tpu").get_device_name(device_id))

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """Bytes of the device's memory."""
        return int(torch.get_device_module("tpu").mem_get_info(device_id)[1])

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        """Bytes that tensors hold."""
        return float(torch.get_device_module("tpu").memory_allocated(device))

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """Make ``device`` the current one."""
        torch.get_device_module("tpu").set_device(device)

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Seed the device's generators."""
        torch.get_device_module("tpu").manual_seed_all(seed)

    @classmethod
    def inference_mode(cls) -> Any:
        """Weights are loaded and steps run without gradients."""
        return torch.no_grad()

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        """Batches are built in the host's memory and go over packed, in one copy."""
        return False

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        """The one attention there is."""
        if attn_selector_config.use_mla or attn_selector_config.use_sparse:
            raise NotImplementedError("latent (MLA) and sparse attention on the device tpu")
        return f"{PACKAGE}.attention.PagedBackend"

    @classmethod
    def import_kernels(cls) -> None:
        """vLLM's kernels in C++ are of other devices; its layers have PyTorch's operators too."""

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        """Where a step's tokens go is computed on the host."""
        # vLLM loads this class while it looks for its platform: what needs one comes later.
        from vllm.triton_utils.dispatcher import register_kernels  # noqa: PLC0415

        from fuse.integrations.vllm.slots import slot_mapping  # noqa: PLC0415

        name = "vllm.v1.worker.block_table.ComputeSlotMappingKernel.kernel"
        register_kernels({name: slot_mapping})

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Fill in what the user has left open, and refuse what is not there."""
        # As above.
        from vllm.config import CompilationMode, CUDAGraphMode  # noqa: PLC0415

        parallel, scheduler = vllm_config.parallel_config, vllm_config.scheduler_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = f"{PACKAGE}.worker.TpuWorker"
        parallel.disable_custom_all_reduce = True
        # A step's batch is built on the host, from the tokens that the step before has drawn.
        scheduler.async_scheduling = False
        if not vllm_config.cache_config.user_specified_block_size:
            vllm_config.cache_config.block_size = PAGE
        compilation = vllm_config.compilation_config
        compilation.cudagraph_mode = CUDAGraphMode.NONE
        compilation.cudagraph_capture_sizes = []
        if compilation.mode == CompilationMode.VLLM_COMPILE:
            # The graph is compiled whole, by the device: there is no second compiler to serve.
            compilation.mode = CompilationMode.DYNAMO_TRACE_ONCE
            compilation.backend = cls.simple_compile_backend
            compilation.ir_enable_torch_wrap = False
        if vllm_config.lora_config is not None:
            compilation.mode = CompilationMode.NONE
        # A server's shapes are few and run before its first request: nothing is to be tried out.
        os.environ.setdefault("FUSE_TIER", "compiled")
        # Workers are started anew: the device's threads do not survive a fork.
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"

    @classmethod
    def opaque_attention_op(cls) -> bool:
        """A compiled graph calls attention, whose batch is no argument of it, as one operator."""
        return True

    @classmethod
    def get_punica_wrapper(cls) -> str:
        """The products with LoRA's matrices."""
        return f"{PACKAGE}.lora.LoraProducts"

    @classmethod
    def supports_structured_output(cls) -> bool:
        """What a grammar allows is a mask of the logits."""
        return True

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        """Kernels that ask for it are other devices'."""
        return 1
