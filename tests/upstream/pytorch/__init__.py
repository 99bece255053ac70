"""PyTorch's own tests of every device: ``make test-pytorch``."""
