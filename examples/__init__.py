"""Plain PyTorch programs: each runs on its own, and the demo and the benchmarks reuse them."""
