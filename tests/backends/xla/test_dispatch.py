"""Loaded executables run through JAX's compiled dispatch as through the runtime's own call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fuse.backends.xla import dispatch


def loaded(donate: tuple[int, ...] = ()) -> object:
    """An executable of two arrays: their sum and their product."""
    jitted = jax.jit(lambda x, y: (x + y, x * y), donate_argnums=donate, keep_unused=True)
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    return jitted.lower(shape, shape).compile().runtime_executable()


@pytest.mark.parametrize("build", [dispatch.plain, dispatch.compiled])
def test_results_are_the_executables(build):
    call = build(loaded())
    for first in (1.0, 2.0, 3.0):  # the first call makes what the later ones use
        x, y = (np.full(3, value, np.float32) for value in (first, 4.0))
        total, product = call(jax.device_put(x), y)
        np.testing.assert_array_equal(total, x + y)
        np.testing.assert_array_equal(product, x * y)
        assert isinstance(total, jax.Array)


@pytest.mark.parametrize("build", [dispatch.plain, dispatch.compiled])
def test_donated_arrays_are_given_away(build):
    call = build(loaded(donate=(0,)))
    for _ in range(3):
        x, y = jax.device_put(np.ones(3, np.float32)), jax.device_put(np.ones(3, np.float32))
        total, _ = call(x, y)
        np.testing.assert_array_equal(total, np.full(3, 2.0, np.float32))
        assert x.is_deleted() and not y.is_deleted()


def test_the_interface_of_the_jax_that_is_tested_is_known():
    assert dispatch.AVAILABLE and dispatch.PLACES


def test_it_says_what_it_uses(monkeypatch):
    assert dispatch.described() == f"JAX {jax.__version__}'s compiled dispatch"
    monkeypatch.setattr(dispatch, "AVAILABLE", False)
    assert f"JAX {jax.__version__}'s public functions call arrays" in dispatch.described()
    monkeypatch.setattr(dispatch, "PLACES", False)
    assert "call and place arrays" in dispatch.described()
    assert "forgotten" not in dispatch.described()
    monkeypatch.setattr(dispatch, "_LOWERINGS", ())
    assert dispatch.described().endswith("may keep up to 2,048 executables that are forgotten")


@pytest.mark.parametrize("known", [True, False], ids=["placed directly", "by device_put"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float64", "bool", "bfloat16", "complex128"])
def test_placed_memory_is_as_device_put_makes_it(dtype, known, monkeypatch):
    monkeypatch.setattr(dispatch, "PLACES", known and dispatch.PLACES)
    device = jax.devices()[0]
    for shape in [(), (0, 2), (3, 5), (64, 64)]:
        data = (np.arange(np.prod(shape, dtype=int)) % 7).astype(jnp.dtype(dtype)).reshape(shape)
        found = dispatch.placed(data, device)
        with jax.enable_x64(True):
            wanted = jax.device_put(data, device)
        np.testing.assert_array_equal(np.asarray(found), data)
        assert (found.aval, found.sharding) == (wanted.aval, wanted.sharding)
        assert (found.committed, found.weak_type) == (wanted.committed, wanted.weak_type)


def test_placed_memory_and_results_share_one_compiled_program():
    program = jax.jit(lambda x: x + 1)
    one = dispatch.placed(np.ones(3, np.float32), jax.devices()[0])
    for _ in range(3):
        one = program(one)
    np.testing.assert_array_equal(one, np.full(3, 4, np.float32))
    assert program._cache_size() == 1
