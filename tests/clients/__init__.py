"""Libraries that people train and serve with, unmodified; run by `make clients` alone."""
