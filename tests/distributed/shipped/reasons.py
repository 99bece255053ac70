"""Why some of PyTorch's own tests do not pass on the device: the table of docs/distributed.md."""

from __future__ import annotations

from typing import Final

NO_NCCL: Final = "asks PyTorch for NCCL by name, which this build of PyTorch lacks"
SPARSE: Final = "its sum has elements twice, where the group's is coalesced, as gloo's is"
ONE_DEVICE: Final = "expects each process to see every rank's device; here it sees its own"
NAMES: Final = "compares what PyTorch calls a backend that it does not know itself: custom"
ENDS: Final = "takes the default group down and makes it again at an address that is taken"
GLOO_ALONE: Final = "PyTorch's monitored_barrier takes gloo alone, or expects gloo's words"
SLOW: Final = "one of its convolutions takes XLA's CPU longer than the runner's minute"

REASONS: Final[dict[str, str]] = {
    "test_barrier_timeout_global": ENDS,
    "test_average_parameters": NO_NCCL,
    "test_batch_isend_irecv_mixed_backend_err": NO_NCCL,
    "test_nccl_high_priority_stream": NO_NCCL,
    "test_sparse_all_reduce_sum": SPARSE,
    "test_sparse_all_reduce_sum_cuda": SPARSE,
    "test_ddp_logging_data_cpu": NAMES,
    "test_ddp_logging_data_gpu": NAMES,
    "test_ddp_device": ONE_DEVICE,
    "test_ddp_uneven_inputs": SLOW,
    "test_monitored_barrier_gloo": GLOO_ALONE,
    "test_monitored_barrier_gloo_subgroup": GLOO_ALONE,
    "test_monitored_barrier_gloo_rank_0_timeout": GLOO_ALONE,
    "test_monitored_barrier_failure_order": GLOO_ALONE,
    "test_monitored_barrier_wait_all_ranks": GLOO_ALONE,
    "test_monitored_barrier_allreduce_hang": NO_NCCL,
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": NO_NCCL,
}
