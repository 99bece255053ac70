"""The same work written by hand for ``jax.jit``, where that is short."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np


def elementwise() -> Callable[[], float]:
    """The elementwise chain over a million numbers."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal(1_000_000, np.float32))

    @jax.jit
    def chain(y: jax.Array) -> jax.Array:
        for _ in range(5):
            y = jnp.tanh(y * 1.1 + 0.1) - jax.nn.sigmoid(y) * 0.5
        return y.sum()

    return lambda: float(chain(x))


def mlp() -> Callable[[], float]:
    """One training step of the small MLP with momentum, parameters donated."""
    draw = np.random.default_rng(0)
    sizes = [(32, 32)] * 6 + [(32, 4)]
    state = [
        (jnp.asarray(draw.standard_normal(s, np.float32) / 6), jnp.zeros(s[1], jnp.float32))
        for s in sizes
    ]
    momentum = jax.tree.map(jnp.zeros_like, state)
    x = jnp.asarray(draw.standard_normal((16, 32), np.float32))
    y = jnp.asarray(draw.integers(0, 4, 16))

    def loss(weights: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
        h = x
        for w, b in weights[:-1]:
            h = jnp.tanh(h @ w + b)
        logits = h @ weights[-1][0] + weights[-1][1]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def update(weights, moments):  # type: ignore[no-untyped-def]
        value, grads = jax.value_and_grad(loss)(weights)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        return jax.tree.map(lambda w, m: w - 0.01 * m, weights, moments), moments, value

    jitted = jax.jit(update, donate_argnums=(0, 1))

    def step() -> float:
        nonlocal state, momentum
        state, momentum, value = jitted(state, momentum)
        return float(value)

    return step


HANDWRITTEN = {"elementwise": elementwise, "mlp": mlp}
