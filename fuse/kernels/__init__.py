"""JAX functions, Pallas kernels among them, as PyTorch operators; arrays of JAX as tensors."""
