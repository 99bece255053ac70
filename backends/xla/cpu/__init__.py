"""What only XLA's CPU platform needs: PyTorch's kernels inside its programs, and its options."""
