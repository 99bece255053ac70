"""The same work written by hand for ``jax.jit``: a step is one program, as one would write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


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
        return _cross_entropy(logits, y)

    def advance(weights, moments):  # type: ignore[no-untyped-def]
        value, grads = jax.value_and_grad(loss)(weights)
        weights, moments = _momentum(weights, grads, moments)
        return weights, moments, value

    return _stepping(jax.jit(advance, donate_argnums=(0, 1)), state, (momentum,))


Weights = Any
"""A tree of arrays."""


def _draw(sizes: Any) -> Weights:
    """Normal numbers in the place of every shape of a tree."""
    draw = np.random.default_rng(0)
    return jax.tree.map(
        lambda size: jnp.asarray(draw.standard_normal(size, np.float32) / 16),
        sizes,
        is_leaf=lambda one: isinstance(one, tuple) and all(isinstance(n, int) for n in one),
    )


def _stepping(call: Callable[..., Any], *state: Any) -> Callable[[], float]:
    """``call`` takes the state, and returns the next one and what a step reads."""

    def step() -> float:
        nonlocal state
        *after, value = call(*state)
        state = tuple(after)
        return float(value)

    return step


def _training(
    weights: Weights, loss: Callable[[Weights], Any], update: Callable[..., Any], moments: int
) -> Callable[[], float]:
    """One step as one program, weights and moments donated. ``loss`` may return more beside it."""
    state = tuple(jax.tree.map(jnp.zeros_like, weights) for _ in range(moments))

    def advance(weights, state, number):  # type: ignore[no-untyped-def]
        value, grads = jax.value_and_grad(loss)(weights)
        weights, state = update(weights, grads, state, number)
        return weights, state, number + 1, value

    return _stepping(jax.jit(advance, donate_argnums=(0, 1)), weights, state, jnp.float32(1))


def _adamw(weights: Weights, grads: Weights, state: Any, number: jax.Array) -> Any:
    """PyTorch's defaults but a learning rate of 1e-3."""
    first, second = state
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    rate, root = 1e-3 / (1 - 0.9**number), jnp.sqrt(1 - 0.999**number)

    def one(w: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return w * (1 - 1e-3 * 0.01) - rate * m / (jnp.sqrt(v) / root + 1e-8)

    return jax.tree.map(one, weights, first, second), (first, second)


def _momentum(weights: Weights, grads: Weights, state: Any) -> Any:
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, state[0], grads)
    return jax.tree.map(lambda w, m: w - 0.01 * m, weights, moments), (moments,)


def _cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def _norm(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    spread = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(spread + 1e-5) * weight + bias


def _transformer_sizes(layers: int, width: int, length: int) -> Weights:
    block = {
        "first": [(width,), (width,)],
        "second": [(width,), (width,)],
        "qkv": [(width, 3 * width), (3 * width,)],
        "out": [(width, width), (width,)],
        "up": [(width, 4 * width), (4 * width,)],
        "down": [(4 * width, width), (width,)],
    }
    return {
        "tokens": (96, width),
        "places": (length, width),
        "blocks": [block] * layers,
        "norm": [(width,), (width,)],
        "head": [(width, 96), (96,)],
    }


def _linear(x: jax.Array, layer: list[jax.Array]) -> jax.Array:
    return x @ layer[0] + layer[1]


def _transformer(weights: Weights, tokens: jax.Array, heads: int, causal: bool) -> jax.Array:
    """As ``programs.Transformer``."""
    x = weights["tokens"][tokens] + weights["places"][: tokens.shape[1]]
    batch, length, width = x.shape
    for block in weights["blocks"]:
        parts = jnp.split(_linear(_norm(x, *block["first"]), block["qkv"]), 3, -1)
        q, k, v = (part.reshape(batch, length, heads, -1) for part in parts)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
        x = x + _linear(mixed.reshape(batch, length, width), block["out"])
        inner = jax.nn.gelu(_linear(_norm(x, *block["second"]), block["up"]), approximate=False)
        x = x + _linear(inner, block["down"])
    return _linear(_norm(x, *weights["norm"]), weights["head"])


def _gpt(layers: int, width: int, heads: int, batch: int) -> Callable[[], float]:
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 96, (batch, 65)))

    def loss(weights: Weights) -> jax.Array:
        logits = _transformer(weights, tokens[:, :-1], heads, True)
        return _cross_entropy(logits.reshape(-1, 96), tokens[:, 1:].reshape(-1))

    return _training(_draw(_transformer_sizes(layers, width, 64)), loss, _adamw, 2)


def gpt_small() -> Callable[[], float]:
    """The character GPT of 0.5 M parameters, one training step."""
    return _gpt(2, 128, 4, 32)


def gpt_large() -> Callable[[], float]:
    """The character GPT of 4 M parameters, one training step."""
    return _gpt(5, 256, 8, 16)


def bert() -> Callable[[], float]:
    """Inference of the encoder of four layers."""
    weights = _draw(_transformer_sizes(4, 256, 128))
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 96, (4, 128)))
    run = jax.jit(lambda weights, tokens: _transformer(weights, tokens, 8, False).mean())
    return lambda: float(run(weights, tokens))


def adamw() -> Callable[[], float]:
    """AdamW over 60 tensors."""
    weights, grads = (_draw([(64, 64 + k % 3) for k in range(60)]) for _ in range(2))
    state = tuple(jax.tree.map(jnp.zeros_like, weights) for _ in range(2))

    def update(weights, grads, state, number):  # type: ignore[no-untyped-def]
        weights, state = _adamw(weights, grads, state, number)
        return weights, state, number + 1, weights[0][0, 0]

    jitted = jax.jit(update, donate_argnums=(0, 2))
    return _stepping(
        lambda weights, *state: jitted(weights, grads, *state), weights, state, jnp.float32(1)
    )


def lstm() -> Callable[[], float]:
    """The LSTM unrolled by hand over 32 time steps, one training step."""
    x = _draw((32, 16, 32))
    sizes = {"in": [(32, 256), (256,)], "own": [(64, 256), (256,)], "head": [(64, 8), (8,)]}

    def loss(weights: Weights) -> jax.Array:
        h = c = jnp.zeros((16, 64))
        for t in range(32):
            gates = _linear(x[t], weights["in"]) + _linear(h, weights["own"])
            i, f, g, o = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return jnp.square(_linear(h, weights["head"])).mean()

    def update(weights: Weights, grads: Weights, state: Any, number: jax.Array) -> Any:
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, grads), state

    return _training(_draw(sizes), loss, update, 0)


def _convolved(x: jax.Array, weight: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, weight, (1, 1), "SAME")


def _batch_norm(x: jax.Array, layer: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
    """Normalised by the batch, and the batch's mean and variance."""
    mean = x.mean((0, 2, 3), keepdims=True)
    spread = jnp.square(x - mean).mean((0, 2, 3), keepdims=True)
    weight, bias = (one[:, None, None] for one in layer)
    return (x - mean) * lax.rsqrt(spread + 1e-5) * weight + bias, [mean[0], spread[0]]


def _net(
    sizes: Weights,
    shape: tuple[int, ...],
    forward: Callable[[Weights, jax.Array], tuple[jax.Array, list[Any]]],
) -> Callable[[], float]:
    """One training step of a convolutional net with momentum and running averages."""
    x, weights = _draw(shape), _draw(sizes)
    y = jnp.asarray(np.random.default_rng(0).integers(0, 10, shape[0]))
    moments = (jax.tree.map(jnp.zeros_like, weights),)

    def loss(weights: Weights) -> Any:
        logits, seen = forward(weights, x)
        return _cross_entropy(logits, y), seen

    averages = jax.tree.map(
        lambda one: jnp.zeros(one.shape), jax.eval_shape(lambda w: loss(w)[1], weights)
    )

    def advance(weights, moments, averages):  # type: ignore[no-untyped-def]
        (value, seen), grads = jax.value_and_grad(loss, has_aux=True)(weights)
        averages = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, averages, seen)
        weights, moments = _momentum(weights, grads, moments)
        return weights, moments, averages, value

    return _stepping(jax.jit(advance, donate_argnums=(0, 1, 2)), weights, moments, averages)


def digits() -> Callable[[], float]:
    """The small convolutional net on 8x8 images, one training step of 64."""

    def forward(weights: Weights, x: jax.Array) -> tuple[jax.Array, list[Any]]:
        seen = []
        for weight, bias, norm in weights["layers"]:
            x, found = _batch_norm(_convolved(x, weight) + bias[:, None, None], norm)
            x = lax.reduce_window(
                jax.nn.relu(x), -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
            )
            seen.append(found)
        return _linear(x.reshape(64, 128), weights["head"]), seen

    layers = [
        [(out, inward, 3, 3), (out,), [(out,), (out,)]] for inward, out in ((1, 16), (16, 32))
    ]
    return _net({"layers": layers, "head": [(128, 10), (10,)]}, (64, 1, 8, 8), forward)


def residual() -> Callable[[], float]:
    """The residual net of three blocks on 16x16 images, one training step of 16."""

    def forward(weights: Weights, x: jax.Array) -> tuple[jax.Array, list[Any]]:
        seen = []
        x = _convolved(x, weights["first"][0]) + weights["first"][1][:, None, None]
        for first, first_norm, second, second_norm in weights["blocks"]:
            y, one = _batch_norm(_convolved(x, first), first_norm)
            y, two = _batch_norm(_convolved(jax.nn.relu(y), second), second_norm)
            x = jax.nn.relu(x + y)
            seen += [one, two]
        return _linear(x.mean((2, 3)), weights["head"]), seen

    block = [(32, 32, 3, 3), [(32,), (32,)], (32, 32, 3, 3), [(32,), (32,)]]
    sizes = {"first": [(32, 3, 3, 3), (32,)], "blocks": [block] * 3, "head": [(32, 10), (10,)]}
    return _net(sizes, (16, 3, 16, 16), forward)


def decode() -> Callable[[], float]:
    """48 tokens, one program for each length of the key-value cache, as PyTorch's program has."""
    sizes = {"tokens": (96, 128), "head": [(128, 96), (96,)],
             "layers": [[[(128, 384), (384,)], [(128, 128), (128,)]]] * 2}  # fmt: skip
    weights = _draw(sizes)

    @jax.jit
    def one(weights, token, kept):  # type: ignore[no-untyped-def]
        x, grown = weights["tokens"][token], []
        for (qkv, out), past in zip(weights["layers"], kept, strict=True):
            q, k, v = jnp.split(_linear(x, qkv), 3, -1)
            if past is not None:
                k, v = (jnp.concatenate(pair, 1) for pair in zip(past, (k, v), strict=True))
            grown.append((k, v))
            scores = q @ jnp.swapaxes(k, 1, 2) / 128**0.5
            x = x + _linear(jax.nn.softmax(scores) @ v, out)
        return _linear(x, weights["head"])[:, -1].argmax(-1, keepdims=True), grown

    def step() -> float:
        token, kept, total = jnp.zeros((1, 1), jnp.int32), [None, None], 0
        for _ in range(48):
            token, kept = one(weights, token, kept)
            total += int(token[0, 0])
        return float(total)

    return step


HANDWRITTEN = {
    "gpt 0.5M": gpt_small,
    "gpt 4M": gpt_large,
    "digits": digits,
    "residual": residual,
    "lstm": lstm,
    "mlp": mlp,
    "elementwise": elementwise,
    "adamw 60": adamw,
    "bert": bert,
    "decode": decode,
}
