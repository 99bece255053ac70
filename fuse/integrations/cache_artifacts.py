"""Makes ``torch.compiler.load_cache_artifacts`` know the kind of this package's artifacts.

It imports the modules whose kinds are PyTorch's own, AOTAutograd's cache among them; kinds that are
not registered by then make the whole of the artifacts unreadable.
"""

from __future__ import annotations

import importlib
from types import ModuleType


def extend(module: ModuleType) -> None:
    """Register the kind, beside AOTAutograd's in ``module``."""
    # Here: nothing of the compiler is loaded before the program uses PyTorch's.
    importlib.import_module("fuse.compile.artifacts")
