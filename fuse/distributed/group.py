"""One process group: what its C++ asks of Python, and how the group begins and ends."""

from __future__ import annotations

import atexit
import functools
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from fuse.device import lazy
from fuse.distributed import native, runtime
from fuse.distributed.fake import FakePrograms
from fuse.trace.source import user_line


@functools.cache
def _serve_sparse() -> torch.library.Library:
    """A sum of sparse tensors goes to the group as that of dense ones does."""
    kernel = torch.library.get_kernel("c10d::allreduce_", "PrivateUse1")
    library = torch.library.Library("c10d", "IMPL", "SparsePrivateUse1")
    library.impl("allreduce_", kernel.call_boxed, with_keyset=True)
    return library


def create(options: Any) -> Any:
    """The backend of a group, from PyTorch's ``DistributedBackendOptions``."""
    return _make(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
        list(options.global_ranks_in_group),
    )


def _make(store: Any, rank: int, size: int, timeout: timedelta, name: str, ranks: list[int]) -> Any:
    module = native.load()
    _serve_sparse()
    _tell_peers_at_exit()
    fake = lazy.is_fake()
    store = dist.HashStore() if fake else store  # PyTorch's FakeStore can nothing but be passed on
    if not ranks and not fake and runtime.may_be_needed():
        runtime.start(store, rank, size, timeout)
    callbacks = (FakeCallbacks if fake else Callbacks)(size, ranks)
    return module.make_group(store, rank, size, timeout, name, ranks, fake, callbacks)


class Callbacks:
    """What a group's native part asks of Python, by name: see csrc/collectives/callbacks.h."""

    def __init__(self, size: int, ranks: list[int]) -> None:
        """How many ranks the group has, and which: numbers in the default group; none where it is
        that.
        """
        self.size = size
        self._ranks = ranks
        self._programs: runtime.Programs | FakePrograms | None = None

    def programs(self) -> runtime.Programs | FakePrograms:
        """What carries calls out."""
        return runtime.Programs(self._ranks or range(self.size))

    def values(self) -> Any:
        """The native core's table of functions; starts the device."""
        return lazy.core().values

    def line(self) -> str:
        """The user's line that calls."""
        return user_line()

    def uses_runtime(self) -> bool:
        """Whether device tensors go by JAX's runtime: where they do not lie in host memory."""
        return runtime.is_used()

    def run(self, *call: Any) -> list[Any]:
        """Carry a call out by JAX's runtime; the targets' arrays: see ``Programs.run``."""
        if self._programs is None:
            self._programs = self.programs()
        return self._programs.run(runtime.Call(*call))

    def split(
        self, store: Any, rank: int, size: int, milliseconds: int, name: str, ranks: list[int]
    ) -> Any:
        """The backend of a group of some of this one's ranks."""
        return _make(store, rank, size, timedelta(milliseconds=milliseconds), name, ranks)


class FakeCallbacks(Callbacks):
    """Those of a group whose other ranks are there only in name."""

    def programs(self) -> FakePrograms:
        """Calls of which nothing moves."""
        return FakePrograms(self._ranks or range(self.size))

    def line(self) -> str:
        """The user's line; what has been recorded before the call runs before it, on every stream,
        so that chunks and calls keep the order of the program.
        """
        lazy.core().cut("synchronize")
        return super().line()


@functools.cache
def _tell_peers_at_exit() -> None:
    """Before the process ends, its groups' other ranks are told how: they may be waiting."""
    atexit.register(_leave_all)


def _leave_all() -> None:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    fate = "has ended" if error is None else f"has raised {type(error).__name__}: {error}"
    native.load().leave_all(fate[:400])
    runtime.close()
