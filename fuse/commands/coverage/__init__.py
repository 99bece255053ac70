"""``fuse coverage``: PyTorch's own operator, module and optimizer databases on the device."""

from fuse.commands.coverage.command import main

__all__ = ["main"]
