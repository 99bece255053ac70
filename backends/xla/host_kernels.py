"""PyTorch's CPU kernels inside XLA programs, for what XLA's CPU compiler does slowly.

The device's native core holds them as handlers of XLA's foreign function interface
(``csrc/host_kernels.cpp``); ``register`` makes them known to XLA by name, and a rule that finds
``available`` calls one instead of writing the operator in XLA's terms. Without the core, and on
every other platform, rules write everything in XLA's terms.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
import torch

TARGETS: Final = (
    "fuse_attention",
    "fuse_attention_gradient",
    "fuse_chain",
    "fuse_convolution",
    "fuse_convolution_gradient",
    "fuse_grouped_product",
    "fuse_layer_norm",
    "fuse_layer_norm_gradient",
    "fuse_product",
    "fuse_update",
)
_registered: dict[str, str] = {}


def register(library: Path) -> None:
    """Make the handlers of the native core ``library`` known to XLA; once a process."""
    if _registered:
        return
    handlers = ctypes.CDLL(str(library))
    for target in TARGETS:
        handler = jax.ffi.pycapsule(getattr(handlers, target))
        jax.ffi.register_ffi_target(target, handler, platform="cpu")
    _registered["kernels"] = f"torch {torch.__version__}, 9"


def version() -> str:
    """What results of programs that call the kernels depend on; empty where there are none."""
    return _registered.get("kernels", "")


def known(platform: str) -> bool:
    """Whether programs for ``platform`` may call kernels."""
    return bool(_registered) and platform == "cpu"


def available(platform: str, *values: jax.Array) -> bool:
    """Whether programs for ``platform`` may call a kernel on ``values``: not empty, and float32."""
    return known(platform) and all(
        value.dtype == jnp.float32 and value.size > 0 for value in values
    )


def call(target: str, results: Any, *values: jax.Array, **attributes: Any) -> Any:
    """The kernel's results, of the shapes and dtypes ``results``; integers become 64-bit."""
    return _call(target, results, {}, values, attributes)


def overwrite(target: str, value: jax.Array, *others: jax.Array, **attributes: Any) -> jax.Array:
    """The result of a kernel that changes ``value`` in its memory; XLA copies it first if others
    need it after the call."""
    shape = jax.ShapeDtypeStruct(value.shape, value.dtype)
    changed: jax.Array = _call(target, shape, {0: 0}, (value, *others), attributes)
    return changed


def _call(
    target: str,
    results: Any,
    aliases: dict[int, int],
    values: Sequence[jax.Array],
    attributes: dict[str, Any],
) -> Any:
    function: Callable[..., Any] = jax.ffi.ffi_call(target, results, input_output_aliases=aliases)
    return function(*values, **{name: _attribute(value) for name, value in attributes.items()})


def _attribute(value: bool | int | float | Sequence[int] | np.ndarray) -> Any:
    if isinstance(value, bool | np.ndarray):
        return value
    if isinstance(value, float):
        return np.float64(value)
    return np.int64(value) if isinstance(value, int) else np.array(value, np.int64)
