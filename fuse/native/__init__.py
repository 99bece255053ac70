"""Builds C++ on the user's machine: the device's core, and kernels of backends."""
