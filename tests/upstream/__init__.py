"""Others' own tests on this device: ``make test-pytorch`` and ``make test-transformers``."""
