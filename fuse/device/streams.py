"""``torch.tpu.Stream`` and ``Event``, and the current stream: docs/streams.md."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from fuse.device import lazy
from fuse.device.current_device import Which, device, index_of


class Stream(torch.Stream):
    """A queue of calls, which become programs of their own: see docs/streams.md.

    Every thread begins on a stream of its own. What one makes and another reads is ordered by
    itself. There are 32 to be made, which are then handed out again, as on CUDA.
    """

    def __new__(cls, device: Which = None, priority: int = 0, **kwargs: Any) -> Stream:
        """A stream on a device; starts the device.

        Args:
            device: index, string or ``torch.device``; ``None`` is the current one.
            priority: not read: the device has no priorities.
            kwargs: what PyTorch itself gives, to make the object of a stream that there is.

        Raises:
            RuntimeError: there is no device of this index.
        """
        lazy.initialise()
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("tpu", index_of(device)))


class Event(torch.Event):
    """A point on a stream; complete once what was recorded on it before has run.

    Recording one neither hands on nor waits, unless it times: it remembers the position.
    """

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Event:
        """An event, which is on no stream yet; starts the device.

        Args:
            enable_timing: whether it has a time.
            blocking: as ``torch.Event`` takes it.
            interprocess: as ``torch.Event`` takes it; no event of the device has a handle to send.
        """
        lazy.initialise()
        return super().__new__(
            cls,
            device="tpu",
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )

    def record(self, stream: torch.Stream | None = None) -> Event:  # type: ignore[override]
        """Remember the present position of a stream.

        Args:
            stream: the stream; ``None`` is the calling thread's current one.

        Returns:
            The event itself.
        """
        super().record(stream)
        return self

    def elapsed_time(self, other: torch.Event) -> float:
        """Milliseconds from this event to another, as both were recorded.

        Args:
            other: an event of the device, of this class or PyTorch's own.

        Raises:
            ValueError: one of them does not time, or has not been recorded.
        """
        return lazy.core().elapsed(self, other)


def current_stream(which: Which = None) -> torch.Stream:
    """The calling thread's current stream; starts the device.

    Args:
        which: the device; ``None`` is the current one.
    """
    lazy.initialise()
    found = torch.accelerator.current_stream(index_of(which))
    return _as_stream(found, found.stream_id)


def default_stream(which: Which = None) -> torch.Stream:
    """The stream on which the first thread that used the device began; starts the device.

    Args:
        which: the device; ``None`` is the current one.
    """
    lazy.initialise()
    return _as_stream(torch.accelerator.current_stream(index_of(which)), 0)


def _as_stream(like: torch.Stream, number: int) -> torch.Stream:
    return Stream(stream_id=number, device_index=like.device_index, device_type=like.device_type)


@contextlib.contextmanager
def stream(chosen: torch.Stream | None) -> Iterator[None]:
    """Context manager: run the block on a stream, and on its device.

    Args:
        chosen: the stream; ``None`` changes nothing.

    Example:
        ```python
        side = torch.tpu.Stream()
        with torch.tpu.stream(side):
            y = torch.ones(3, device="tpu") * 2
        print(y.sum().item())  # 6.0
        ```
    """
    if chosen is None:
        yield
        return
    with device(chosen.device):
        before = torch.accelerator.current_stream(chosen.device)
        torch.accelerator.set_stream(chosen)
        try:
            yield
        finally:
            torch.accelerator.set_stream(before)


def set_stream(chosen: torch.Stream | None) -> None:
    """Make a stream the calling thread's current one.

    Args:
        chosen: the stream; ``None`` changes nothing.
    """
    if chosen is not None:
        torch.accelerator.set_stream(chosen)
