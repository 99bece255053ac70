"""The GPU's compiler, XLA's CUDA plugin, in a process of its own: see ``targets/worker.py``."""

from __future__ import annotations

from typing import Any, Final

from jax.experimental import topologies

from fuse.backends.xla.gpu.costs import cost
from fuse.backends.xla.gpu.description import described
from fuse.backends.xla.gpu.products import ATTENTION
from fuse.backends.xla.gpu.targets import GpuName, cuda, cudnn, find
from fuse.backends.xla.targets.worker import Compiler

UNTUNED: Final = {"xla_gpu_enable_triton_gemm": False}
"""Products by cuBLAS. XLA measures on the GPU which tiles its own are to have; where there is none
it takes tiles of 16 x 8, and sums of four parts: a kernel that no GPU's host would have chosen."""
UNFINISHED: Final = (ATTENTION,)
"""cuDNN makes the kernels of these for the GPU at hand; a program that was compiled without one
lacks them."""


def topology(target: GpuName) -> Any:
    """JAX's description of a target's devices; raises what the plugin says of it."""
    text = described(target.model, cuda(), cudnn())
    found: Any = topologies.get_topology_desc(
        platform="cuda",
        topology_name=target.topology(),
        topology=f"1x1x{target.count}",
        target_config=text,
    )
    return found


def create(name: str) -> Compiler:
    """The compiler for the target of that name; raises what the plugin says of it."""
    target = find(name)
    assert target is not None, f"no GPU is called {name}"
    return Compiler(
        topology(target).devices, target.platform(), cost, UNTUNED, unfinished=UNFINISHED
    )
