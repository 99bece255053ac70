"""What is known of the device's memory: its size, what is free, and the error where it is full."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fuse.backends.base import Backend
from fuse.errors import describe, in_units
from fuse.trace.source import user_line

_MEMINFO = Path("/proc/meminfo")


class DeviceMemory:
    """The memory of the backend that is in use when it is asked."""

    def __init__(self, backend: Callable[[], Backend]) -> None:
        self._backend = backend

    def bounds(self) -> tuple[int, int]:
        """Bytes that one value may have, and all of them together; 0: the device says itself."""
        backend = self._backend()
        largest = max(map(backend.memory_bytes, range(backend.device_count())))
        return largest, largest if backend.shares_host_memory() else 0

    def memory_info(self, device: int, held: int) -> tuple[int, int]:
        """Bytes of a device that are free, where values take ``held``, and all that it has."""
        backend = self._backend()
        total = backend.memory_bytes(device)
        free = _available() if backend.shares_host_memory() else None
        return max(total - held, 0) if free is None else min(free, total), total

    def no_memory(self, nbytes: int, held: int, largest: int, operator: str) -> str:
        """What ``torch.OutOfMemoryError`` says at a call that asks for too much."""
        return describe(
            f"tpu out of memory: tried to allocate {in_units(nbytes)}; "
            f"{in_units(held)} of {in_units(largest)} are in use",
            operator=operator,
            source=user_line(),
            hint="let go of tensors that are not needed, or compute in smaller parts",
        )


def _available() -> int | None:
    """Bytes of the host's memory that can be had without swapping; None where no system says."""
    if not _MEMINFO.exists():
        return None
    fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    return 1024 * int(fields["MemAvailable"].split()[0])
