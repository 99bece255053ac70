"""Backend name -> module, loaded on first use: only a chosen backend's libraries are imported."""

from __future__ import annotations

import importlib
from functools import cache

from fuse.backends.base import Backend

_MODULES = {"xla": "fuse.backends.xla.backend", "numpy": "fuse.backends.numpy.backend"}


@cache
def get_backend(name: str) -> Backend:
    """The one instance of a backend. ``name`` has been checked by ``fuse.config``."""
    backend: Backend = importlib.import_module(_MODULES[name]).create()
    return backend
