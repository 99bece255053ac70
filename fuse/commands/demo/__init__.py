"""``fuse demo``: train two plain PyTorch programs on the CPU and in every mode of the device."""

from fuse.commands.demo.command import main

__all__ = ["main"]
