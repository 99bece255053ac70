"""fuse: a PyTorch device, "tpu", that records eager operations and runs them fused on XLA.

``import fuse`` is light: neither torch's device core nor JAX is loaded before first use. Where
PyTorch is there and has not registered the device, this does.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

__version__ = "0.2.0"

_PUBLIC = {
    "set_mode": "fuse.modes",
    "get_mode": "fuse.modes",
    "set_backend": "fuse.modes",
    "get_backend": "fuse.modes",
    "FusedEager": "fuse.modes",
    "StrictEager": "fuse.modes",
    "DebugEager": "fuse.modes",
    "stats": "fuse.report.statistics",
    "reset_stats": "fuse.report.statistics",
    "explain": "fuse.report.explain",
    "compare": "fuse.report.comparison",
    "kernel": "fuse.kernels.kernel",
    "jax_call": "fuse.kernels.jax_call",
    "as_jax": "fuse.kernels.as_jax",
    "to_stablehlo": "fuse.kernels.as_jax",
    "to_jax": "fuse.kernels.interchange",
    "from_jax": "fuse.kernels.interchange",
    "compile_for": "fuse.aot.report",
    "compile_pod": "fuse.aot.pod",
    "search_pod": "fuse.aot.search",
    "fake": "fuse.aot.fake",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562): ``import torch`` imports this package."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fuse' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    # Kept, because importing fuse.explain has just made that module the attribute of its name.
    globals()[name] = value
    return value


def _pytorch_is_being_imported() -> bool:
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


by_program = not _pytorch_is_being_imported()
"""Whether the program imports this, and not PyTorch, looking for devices."""

if by_program and "torch" in sys.modules:
    importlib.import_module("fuse.device.autoload").autoload()
