"""vLLM's worker: one process, one device; what it does before the first request."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.logger import init_logger
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.worker.gpu_worker import Worker, init_worker_distributed_environment
from vllm.v1.worker.worker_base import CompilationTimes

from fuse.integrations.vllm.model_runner import TpuModelRunner
from fuse.integrations.vllm.platform import TpuPlatform

logger = init_logger("vllm.fuse.worker")


class TpuWorker(Worker):
    """vLLM's worker, of which the start is the device's own."""

    def init_device(self) -> None:
        """Join the other ranks and make the runner; the model is loaded later."""
        self.device = torch.device("tpu")
        init_worker_distributed_environment(
            self.vllm_config,
            self.rank,
            self.distributed_init_method,
            self.local_rank,
            TpuPlatform.dist_backend,
        )
        set_random_seed(self.model_config.seed)
        self.model_runner = TpuModelRunner(self.vllm_config, self.device)

    @torch.inference_mode()
    def determine_available_memory(self) -> int:
        """Bytes for the cache: those asked for, or what is free of the share that vLLM may have."""
        asked = self.cache_config.kv_cache_memory_bytes
        if asked:
            return int(asked)
        free, total = torch.get_device_module("tpu").mem_get_info()
        share = int(total * self.cache_config.gpu_memory_utilization)
        available = min(share - (total - free), free)
        if available <= 0:
            raise ValueError(
                f"{free >> 20} MiB of {total >> 20} MiB are free, and vLLM may use "
                f"{share >> 20} MiB of all: no memory is left for the cache. Hint: give "
                "kv_cache_memory_bytes, or a larger gpu_memory_utilization"
            )
        return int(available)

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Run a step of every shape that the server can need."""
        start = time.perf_counter()
        with set_current_vllm_config(self.vllm_config):
            shapes = self.model_runner.warm_up()
        seconds = time.perf_counter() - start
        logger.info("%d shapes of steps ran in %.1f s", shapes, seconds)
        set_random_seed(self.model_config.seed)
        return CompilationTimes(language_model=seconds, encoder=0.0)

    def sleep(self, level: int = 1) -> None:
        """There is no memory that could be given back and taken again."""
        logger.warning("sleep mode is not supported on the device tpu: ignored")

    def wake_up(self, tags: list[str] | None = None) -> None:
        """As ``sleep``."""

    def _maybe_get_memory_pool_context(self, tag: str) -> Any:
        return contextlib.nullcontext()
