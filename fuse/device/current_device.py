"""Which device is current: ``torch.tpu.device``, ``current_device`` and ``set_device``."""

from __future__ import annotations

import torch

from fuse.device import lazy

Which = torch.device | str | int | None
"""How a device is said; ``None`` is the current one."""


def index_of(which: Which) -> int:
    """The index of a device; the current one's where none is said."""
    if which is None:
        return current_device()
    if isinstance(which, int):
        return which
    device = torch.device(which)
    return current_device() if device.index is None else device.index


def current_device() -> int:
    """The calling thread's current device.

    Returns:
        Its index; 0 before the device has been started, and starts nothing.
    """
    if not lazy.is_initialised():
        return 0
    return lazy.core().get_device()


def set_device(device: Which) -> None:
    """Make a device the calling thread's current one; starts the device.

    Args:
        device: index, string or ``torch.device``. ``None``, and one without an index, is the
            current one.

    Raises:
        RuntimeError: there is no device of this index.
    """
    lazy.initialise()
    lazy.core().set_device(index_of(device))


class device:  # noqa: N801  (the name PyTorch looks for)
    """Context manager: a current device for the block, the calling thread's."""

    def __init__(self, which: Which) -> None:
        """What the block's device is; entering it starts the device.

        Args:
            which: index, string or ``torch.device``; ``None`` is the current one, -1 no change.

        Raises:
            RuntimeError: on entering, where there is no device of this index.
        """
        self.idx = index_of(which)
        self.prev_idx = -1

    def __enter__(self) -> None:
        """Switch."""
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *_: object) -> None:
        """Switch back."""
        if self.prev_idx >= 0:
            set_device(self.prev_idx)


def exchange_device(index: int) -> int:
    """Make a device the current one, none where it is negative; returns the one before."""
    before = current_device()
    if index >= 0:
        set_device(index)
    return before
