"""What PyTorch sees: the device, and ``torch.tpu``."""

# First of all: `import torch` loads the entry point, which needs this folder's modules whole.
import torch  # noqa: F401
