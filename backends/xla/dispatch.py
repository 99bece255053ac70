"""Calls a loaded executable through JAX's compiled dispatch, as `jax.jit` calls its own.

A loaded executable's plain call wraps every result in Python, about 1.5 us each; JAX's dispatch
does it in C++. It is JAX's internal interface (version 0.10): where it is another, the plain
call remains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

try:
    from jax._src import tree_util
    from jax._src.interpreters.pxla import (
        JitGlobalCppCacheKeys,
        MeshExecutableFastpathData,
        cc_shard_arg,
    )
    from jax._src.lib import _jax
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = hasattr(_jax, "pjit") and MeshExecutableFastpathData._fields == (
        "xla_executable",
        "out_pytree_def",
        "in_shardings",
        "out_shardings",
        "out_avals",
        "out_committed",
        "kept_var_bitvec",
        "in_device_local_layouts",
        "const_args",
    )


def _placed(values: tuple[Any, ...]) -> list[jax.Array]:
    """Arrays as they are: asking JAX to put one where it is takes 20 us."""
    return [value if isinstance(value, jax.Array) else jax.device_put(value) for value in values]


def plain(loaded: Any) -> Callable[..., list[jax.Array]]:
    """The runtime's own call of a loaded executable on one device."""

    def call(*arguments: Any) -> list[jax.Array]:
        results = loaded.execute_sharded(_placed(arguments))
        return [parts[0] for parts in results.disassemble_into_single_device_arrays()]

    return call


def compiled(loaded: Any) -> Callable[..., list[jax.Array]]:
    """The same call through JAX's dispatch; the first one goes the plain way.

    Every call must be on arrays of the same shapes and dtypes, all on the first device.
    """
    first = plain(loaded)

    def miss(*arguments: Any) -> tuple[list[jax.Array], Any, bool]:
        placed = _placed(arguments)
        results = first(*placed)
        _, structure = tree_util.dispatch_registry.flatten(results, None)
        data = MeshExecutableFastpathData(
            loaded,
            structure,
            [value.sharding for value in placed],
            [value.sharding for value in results],
            [value.aval for value in results],
            [value.committed for value in results],
            [True] * len(placed),
            [None] * len(placed),
            [],
        )
        return results, data, False

    function: Callable[..., list[jax.Array]] = _jax.pjit(
        "fuse", None, miss, [], [], JitGlobalCppCacheKeys(), tree_util.dispatch_registry,
        cc_shard_arg,
    )  # fmt: skip
    return function
