"""transformers' own test classes of models on the device: ``make test-transformers``."""
