"""PyTorch's CPU kernels inside XLA programs, for what XLA's CPU compiler does slowly.

``csrc/`` holds them as handlers of XLA's foreign function interface, a library of their own.
``register`` builds it and makes them known to XLA by name; a rule that finds ``available`` calls
one instead of writing the operator in XLA's terms. Before that, rules write everything in XLA's
terms.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
import torch

from fuse.native.build import Library, headers_of


def _ffi_version() -> str:
    """The version of XLA's interface for custom calls, which changes less often than jaxlib's."""
    text = (headers_of("jaxlib") / "xla/ffi/api/c_api.h").read_text()
    return ".".join(re.findall(r"#define XLA_FFI_API_M(?:AJOR|INOR) (\d+)", text))


KERNELS: Final = Library(
    label="the kernels for XLA's CPU platform",
    sources=Path(__file__).parent / "csrc",
    units=(
        "attention.cpp",
        "convolutions.cpp",
        "fused_regions.cpp",
        "norms.cpp",
        "operators.cpp",
        "products.cpp",
        "updates.cpp",
    ),
    links=("torch_cpu", "c10"),
    packages=("jaxlib",),
    interface=_ffi_version(),
)
TARGETS: Final = (
    "aten_operator",
    "attention",
    "attention_gradient",
    "convolution",
    "convolution_gradient",
    "fused_region",
    "grouped_product",
    "layer_norm",
    "layer_norm_gradient",
    "product",
    "update",
)
_registered: dict[str, str] = {}


def register() -> None:
    """Build the handlers where that has not been done, and make them known to XLA."""
    if _registered:
        return
    handlers = KERNELS.load(lambda file: ctypes.CDLL(str(file)))
    for target in TARGETS:
        handler = jax.ffi.pycapsule(getattr(handlers, f"fuse_{target}"))
        jax.ffi.register_ffi_target(f"fuse_{target}", handler, platform="cpu")
    _registered["kernels"] = f"torch {torch.__version__}, 10"


def version() -> str:
    """What results of programs that call the kernels depend on; empty where there are none."""
    return _registered.get("kernels", "")


def known() -> bool:
    """Whether programs may call kernels."""
    return bool(_registered)


def available(target: str, *values: jax.Array) -> bool:
    """Whether programs may call ``target`` on ``values``: none of them empty, all float32."""
    return (
        known()
        and target in TARGETS
        and all(value.dtype == jnp.float32 and value.size > 0 for value in values)
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
    function: Callable[..., Any] = jax.ffi.ffi_call(
        f"fuse_{target}", results, input_output_aliases=aliases
    )
    return function(*values, **{name: _attribute(value) for name, value in attributes.items()})


def _attribute(value: bool | int | float | str | Sequence[int] | np.ndarray) -> Any:
    if isinstance(value, bool | str | np.ndarray):
        return value
    if isinstance(value, float):
        return np.float64(value)
    return np.int64(value) if isinstance(value, int) else np.array(value, np.int64)
