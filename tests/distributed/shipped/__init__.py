"""PyTorch's own tests of ``torch.distributed``, run on the device."""
