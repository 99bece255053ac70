"""JAX's multi-process runtime for a group's calls: started with the default group, once a process.

It is what moves device tensors on a TPU or GPU, and on the CPU where ``FUSE_COLLECTIVES=xla`` asks
for it. Only the backend's own module knows JAX: it is loaded here by name, when it is needed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from fuse import config
from fuse.device import lazy
from fuse.errors import FuseError, describe
from fuse.ports import free_port

_state: dict[str, Any] = {}
watcher: Callable[[Any, Sequence[Any], Sequence[Any]], None] | None = None
"""Told of each call's form, sources and results: see ``fuse.distributed.joined``."""


def may_be_needed() -> bool:
    """Whether device tensors will go by the runtime; the device need not have been started."""
    chosen = config.collectives()
    return chosen == "xla" or (chosen == "auto" and _expects_accelerator())


def is_used() -> bool:
    """Whether device tensors go by the runtime: where they do not lie in host memory. Starts the
    device."""
    backend = lazy.engine().backend
    if backend.name != "xla":
        return lazy.is_fake()
    chosen = config.collectives()
    return chosen == "xla" or (chosen == "auto" and not backend.shares_host_memory())


def _expects_accelerator() -> bool:
    """Whether JAX will find a device other than the CPU; asks nothing that starts one."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms:
        return platforms.split(",")[0] != "cpu"
    chips = any(Path("/dev").glob("accel*")) or Path("/dev/vfio/0").exists()
    return (
        chips
        and importlib.util.find_spec("libtpu") is not None
        or (
            Path("/dev/nvidia0").exists()
            and any(map(importlib.util.find_spec, ("jax_cuda12_plugin", "jax_cuda13_plugin")))
        )
    )


def start(store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
    """Join the runtime with every rank of the default group; returns once all have come."""
    if "runtime" in _state:
        return
    module = importlib.import_module("fuse.backends.xla.ranks.runtime")
    store = dist.PrefixStore("runtime/", store)
    seconds = max(1, int(min(timeout.total_seconds(), 300)))
    if not _expects_accelerator():
        if rank == 0:
            store.set("address", _serve(size, seconds))
        address = store.get("address").decode()
        runtime = module.Runtime.on_cpu(address, rank, size, seconds, _own_host())
    elif lazy.is_initialised():
        raise FuseError(
            describe(
                "the tpu device has been started before the process group was made",
                hint="call torch.distributed.init_process_group() first: the processes of a "
                "TPU or GPU join before their devices start",
            )
        )
    else:
        if rank == 0:
            host = _own_host()
            store.set("address", f"{host}:{free_port(host)}")
        address = store.get("address").decode()
        local = int(os.environ.get("LOCAL_RANK", "0"))
        runtime = module.Runtime.initialised(address, rank, size, seconds, local)
    _state["runtime"] = runtime


def close() -> None:
    """Leave the runtime: the default group has ended."""
    runtime = _state.pop("runtime", None)
    if runtime is not None:
        runtime.close()
    service = _state.pop("service", None)
    if service is not None:
        service.stdin.close()  # it ends by itself, once the others have had time to leave


def _own_host() -> str:
    return str(importlib.import_module("fuse.distributed.native").load().own_address())


def _serve(size: int, seconds: int) -> str:
    """Start the coordination service in a process of its own; its address."""
    line = [sys.executable, "-m", "fuse.backends.xla.ranks.service"]
    line += [_own_host(), str(size), str(max(seconds, 10))]
    service = subprocess.Popen(
        line,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is the ranks'
    )
    assert service.stdout is not None
    address = service.stdout.readline().decode().strip()
    if not address:
        raise FuseError("the coordination service of JAX's runtime could not be started")
    _state["service"] = service
    return address


class Joined:
    """A step's program, compiled for all ranks of the default group, which call it together."""

    def __init__(self, program: Any) -> None:
        """``program`` is the same on all ranks."""
        self._runtime = _state["runtime"]
        self._run = self._runtime.joined(program)

    def __call__(self, given: Sequence[Any]) -> list[Any]:
        """Run it on words and inputs: host arrays, or what a call has returned."""
        found: list[Any] = self._run(given)
        return found

    def host(self, result: Any) -> Any:
        """This rank's part of a result, as a host array."""
        return self._runtime.shard_of(result)


class Call(NamedTuple):
    """A collective call, as the native part says it.

    Attributes:
        kind: c10d's name of the collective.
        reduction: the name of the reduction, of any if there is none.
        root: the root's rank, or -1.
        parts: tensors a rank's part is given as.
        dtype: PyTorch's name of the elements' type.
        sources: device arrays, or flat CPU tensors.
        counts: elements of every source that the kind has.
        shapes: of this rank's targets.
        sent: elements for each rank, of an all_to_all.
        received: elements from each rank, of an all_to_all.
        most: the longest of all ranks' counts.
    """

    kind: str
    reduction: str
    root: int
    parts: int
    dtype: str
    sources: Sequence[Any]
    counts: Sequence[int]
    shapes: Sequence[Sequence[int]]
    sent: Sequence[int]
    received: Sequence[int]
    most: int


def flat(tensor: torch.Tensor, dtype: str) -> np.ndarray:
    """A flat CPU tensor as NumPy's, of the dtype that PyTorch calls so."""
    raw = tensor.view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)
    return raw.view(dtype)


class Programs:
    """The collectives of one group as programs of the runtime."""

    def __init__(self, processes: Sequence[int]) -> None:
        """``processes`` are the members' numbers in the default group, in the order of ranks."""
        self._forms = importlib.import_module("fuse.backends.xla.ranks.programs")
        self._group = _state["runtime"].group(processes)

    def run(self, call: Call) -> list[Any]:
        """Carry a call out; an array for each of its shapes, those of this rank's targets."""
        flat, counts = [self._flat(source, call.dtype) for source in call.sources], call.counts
        if call.kind == "all_to_all":
            flat = [self._rows(flat, call.sent, call.most)]
            counts = [call.most * len(call.sent)]
        form = self._forms.Form(
            kind=call.kind,
            reduction=call.reduction,
            root=call.root,
            ranks=self._group.ranks,
            parts=self._group.ranks if call.kind == "gather" else call.parts,
            sources=tuple(counts),
            dtype=call.dtype,
            split_sums=self._group.on_cpu,  # see docs/distributed.md
        )
        results = self._group.run(form, flat)
        if call.kind == "all_to_all":
            results = self._cut(results[0], call.received, call.most, len(call.shapes))
        found = [
            result.reshape(tuple(shape))
            for result, shape in zip(results, call.shapes, strict=False)
        ]
        if watcher is not None:
            watcher(form, call.sources, found)
        return found

    @staticmethod
    def _flat(source: Any, dtype: str) -> Any:
        if isinstance(source, torch.Tensor):
            return flat(source, dtype)
        return lazy.engine().backend.alone(source).reshape(-1)

    @staticmethod
    def _rows(flat: Sequence[Any], sent: Sequence[int], most: int) -> Any:
        """The parts for each rank, one after the other, each as long as the longest."""
        if len(flat) == 1 and all(count == most for count in sent):
            return flat[0]
        whole = np.concatenate([np.asarray(part) for part in flat])
        rows = np.zeros((len(sent), most), whole.dtype)
        for row, end, count in zip(rows, accumulate(sent), sent, strict=True):
            row[:count] = whole[end - count : end]
        return rows.reshape(-1)

    @staticmethod
    def _cut(rows: Any, received: Sequence[int], most: int, targets: int) -> list[Any]:
        parts = [rows[at * most : at * most + count] for at, count in enumerate(received)]
        if targets == len(parts) and targets > 1:
            return parts
        if all(count == most for count in received):
            return [rows]
        put = lazy.engine().backend.put
        return [put(np.concatenate([np.asarray(part) for part in parts]), 0)]
