"""``fuse coverage``: PyTorch's own operator, module and optimizer databases on the device."""
