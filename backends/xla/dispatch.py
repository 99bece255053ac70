"""Calls a loaded executable through JAX's compiled dispatch, as `jax.jit` calls its own, and
places host memory on a device as that does.

A loaded executable's plain call wraps every result in Python, about 1.5 us each; JAX's dispatch
does it in C++. ``jax.device_put`` of one array takes 30 us in a loop of nothing else and 130
between the steps of a program, whose code drives its Python out of the caches; the call below it
takes 6 and 30. Both are JAX's internal interface (versions 0.10 to 0.12): where it is another, the
public call remains.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

try:
    from jax._src import core, tree_util
    from jax._src.interpreters.pxla import (
        JitGlobalCppCacheKeys,
        MeshExecutableFastpathData,
        batched_device_put,
        cc_shard_arg,
    )
    from jax._src.lib import _jax
except ImportError:
    AVAILABLE = PLACES = False
else:
    PLACES = tuple(inspect.signature(batched_device_put).parameters) == (
        "aval",
        "sharding",
        "xs",
        "devices",
        "committed",
        "enable_x64",
    )
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


try:
    from jax._src.interpreters.pxla import _cached_lowering_to_hlo
    from jax._src.pjit import _pjit_lower
except ImportError:
    _LOWERINGS: tuple[Any, ...] = ()
else:
    _LOWERINGS = tuple(
        one for one in (_pjit_lower, _cached_lowering_to_hlo) if hasattr(one, "evict_weakref")
    )


def lowered(
    jitted: jax.stages.Wrapped, specs: Sequence[jax.ShapeDtypeStruct]
) -> jax.stages.Lowered:
    """``jitted.lower(*specs)``, which nobody but the caller holds.

    JAX remembers lowered programs for as long as what they were lowered from lives. Those of 0.12
    hold it themselves, the last 2,048, and what was compiled: 1.6 MB for an encoder layer.
    """
    traced = jitted.trace(*specs)
    made: jax.stages.Lowered = traced.lower()
    for remembered in _LOWERINGS:
        remembered.evict_weakref(traced.jaxpr)
    return made


def described() -> str:
    """Which of JAX's calls are used, for people, and what follows where its inside is not known."""
    missing = [what for what, there in (("call", AVAILABLE), ("place", PLACES)) if not there]
    kept = (
        "" if len(_LOWERINGS) == 2 else "; it may keep up to 2,048 executables that are forgotten"
    )
    if not missing:
        return f"JAX {jax.__version__}'s compiled dispatch{kept}"
    return (
        f"JAX {jax.__version__}'s public functions {' and '.join(missing)} arrays, as fuse does "
        "not know the inside of this version: the same results, some microseconds more an array"
        + kept
    )


@functools.lru_cache(maxsize=1024)
def _form(
    shape: tuple[int, ...], dtype: np.dtype, device: jax.Device
) -> tuple[core.ShapedArray, jax.sharding.Sharding]:
    return core.ShapedArray(shape, dtype), jax.sharding.SingleDeviceSharding(device)


def placed(data: np.ndarray, device: jax.Device) -> jax.Array:
    """``data`` as an array of ``device``, of its own dtype, 64 bits or fewer.

    It may share the memory of ``data``, which must not change any more.
    """
    array: jax.Array
    if PLACES:
        aval, sharding = _form(data.shape, data.dtype, device)
        array = batched_device_put(aval, sharding, [data], [device], True, True)
    else:
        with jax.enable_x64(True):
            array = jax.device_put(data, device)
    return array


def _arrays(
    values: tuple[jax.Array | np.ndarray, ...], device: jax.Device | None
) -> list[jax.Array]:
    """Arrays as they are: asking JAX to put one where it is takes 20 us."""
    return [
        value if isinstance(value, jax.Array) else jax.device_put(value, device) for value in values
    ]


def plain(loaded: Any, device: jax.Device | None = None) -> Callable[..., list[jax.Array]]:
    """The runtime's own call of an executable that is loaded for one device, else the first."""

    def call(*arguments: jax.Array | np.ndarray) -> list[jax.Array]:
        results = loaded.execute_sharded(_arrays(arguments, device))
        return [parts[0] for parts in results.disassemble_into_single_device_arrays()]

    return call


def compiled(loaded: Any, device: jax.Device | None = None) -> Callable[..., list[jax.Array]]:
    """The same call through JAX's dispatch; the first one goes the plain way.

    Every call must be on arrays of the same shapes and dtypes, all on that device.
    """
    first = plain(loaded, device)

    def miss(*arguments: jax.Array | np.ndarray) -> tuple[list[jax.Array], Any, bool]:
        held = _arrays(arguments, device)
        results = first(*held)
        _, structure = tree_util.dispatch_registry.flatten(results, None)
        data = MeshExecutableFastpathData(
            loaded,
            structure,
            [value.sharding for value in held],
            [value.sharding for value in results],
            [value.aval for value in results],
            [value.committed for value in results],
            [True] * len(held),
            [None] * len(held),
            [],
        )
        return results, data, False

    function: Callable[..., list[jax.Array]] = _jax.pjit(
        "fuse", None, miss, [], [], JitGlobalCppCacheKeys(), tree_util.dispatch_registry,
        cc_shard_arg,
    )  # fmt: skip
    return function
