"""PyTorch's own tests of every device, run on this one: ``make test-pytorch``."""
