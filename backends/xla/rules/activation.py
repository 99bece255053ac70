"""XLA rules of activation functions and their gradients.

Each follows the formula of PyTorch's CPU kernel (aten/src/ATen/native/cpu/Activation.cpp)
including which side of a kink the kink itself belongs to and where NaN goes.
"""

from __future__ import annotations

import math

from jax import lax

from fuse.backends.xla.rules.context import RuleContext
from fuse.backends.xla.rules.elementwise import (
    Value,
    cast,
    computed,
    dtype_of,
    exact,
    is_complex,
    larger,
    like,
    select,
    smaller,
    spread,
    widened,
)
from fuse.backends.xla.rules.registry import rule


def _zero(x: Value) -> Value:
    return like(x, 0)


def _positive(x: Value) -> Value:
    return lax.gt(x, _zero(x))


# --- linear pieces -----------------------------------------------------------


@rule("relu")
def _relu(ctx: RuleContext, self: Value) -> Value:
    return larger(self, _zero(self))


@rule("leaky_relu")
def _leaky_relu(ctx: RuleContext, self: Value, negative_slope: Value = 0.01) -> Value:
    x = widened(self)
    return select(_positive(x), x, lax.mul(x, like(x, negative_slope)))


@rule("leaky_relu_backward")
def _leaky_relu_backward(
    ctx: RuleContext, grad: Value, self: Value, negative_slope: Value, self_is_result: bool
) -> Value:
    grad, x = computed(ctx, grad, self)
    return select(_positive(x), grad, lax.mul(grad, like(grad, negative_slope)))


@rule("_prelu_kernel")
def _prelu(ctx: RuleContext, self: Value, weight: Value) -> Value:
    x, weight = computed(ctx, self, weight)
    return select(_positive(x), x, lax.mul(weight, x))


@rule("_prelu_kernel_backward")
def _prelu_backward(
    ctx: RuleContext, grad: Value, self: Value, weight: Value
) -> tuple[Value, Value]:
    grad, x, weight = computed(ctx, grad, self, weight)
    positive = _positive(x)
    return (
        select(positive, grad, lax.mul(weight, grad)),
        select(positive, _zero(x), lax.mul(x, grad)),
    )


@rule("rrelu_with_noise_backward")
def _rrelu_backward(
    ctx: RuleContext,
    grad: Value,
    self: Value,
    noise: Value,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> Value:
    if training:
        return lax.mul(*computed(ctx, grad, noise))
    return _leaky_relu_backward(ctx, grad, self, (lower + upper) / 2, self_is_result)


@rule("threshold")
def _threshold(ctx: RuleContext, self: Value, threshold: Value, value: Value) -> Value:
    return select(lax.le(self, like(self, threshold)), like(self, value), self)


@rule("threshold_backward")
def _threshold_backward(ctx: RuleContext, grad: Value, self: Value, threshold: Value) -> Value:
    grad, x = exact(ctx, grad, self)
    return select(lax.le(x, like(x, threshold)), _zero(grad), grad)


@rule("hardtanh")
def _hardtanh(ctx: RuleContext, self: Value, min_val: Value = -1, max_val: Value = 1) -> Value:
    return smaller(larger(self, like(self, min_val)), like(self, max_val))


@rule("hardtanh_backward")
def _hardtanh_backward(
    ctx: RuleContext, grad: Value, self: Value, min_val: Value, max_val: Value
) -> Value:
    grad, x = exact(ctx, grad, self)
    flat = lax.bitwise_or(lax.le(x, like(x, min_val)), lax.ge(x, like(x, max_val)))
    return select(flat, _zero(grad), grad)


def _ramp(x: Value) -> Value:
    """``clamp(x + 3, 0, 6) / 6``."""
    clamped = lax.min(lax.max(lax.add(x, like(x, 3)), _zero(x)), like(x, 6))
    return lax.mul(clamped, like(x, 1 / 6))


def _within(x: Value, bound: Value) -> Value:
    """Whether ``-bound <= x <= bound``; false for NaN."""
    bound = like(x, bound)
    return lax.bitwise_and(lax.ge(x, lax.neg(bound)), lax.le(x, bound))


@rule("hardswish_backward")
def _hardswish_backward(ctx: RuleContext, grad: Value, self: Value) -> Value:
    grad, x = computed(ctx, grad, self)
    slope = lax.mul(grad, lax.add(lax.mul(x, like(x, 1 / 3)), like(x, 0.5)))
    right = select(lax.lt(x, like(x, 3)), slope, grad)
    return select(lax.le(x, like(x, -3)), _zero(x), right)


@rule("hardsigmoid_backward")
def _hardsigmoid_backward(ctx: RuleContext, grad: Value, self: Value) -> Value:
    grad, x = computed(ctx, grad, self)
    inside = lax.lt(lax.abs(x), like(x, 3))
    return select(inside, lax.mul(grad, like(grad, 1 / 6)), _zero(grad))


@rule("hardshrink")
def _hardshrink(ctx: RuleContext, self: Value, lambd: Value = 0.5) -> Value:
    return select(_within(self, lambd), _zero(self), self)


@rule("softshrink")
def _softshrink(ctx: RuleContext, self: Value, lambd: Value = 0.5) -> Value:
    x = widened(self)
    bound = like(x, lambd)
    low = select(lax.lt(x, lax.neg(bound)), lax.add(x, bound), lax.mul(x, _zero(x)))
    return select(lax.gt(x, bound), lax.sub(x, bound), low)


@rule("hardshrink_backward", "softshrink_backward")
def _shrink_backward(ctx: RuleContext, grad: Value, self: Value, lambd: Value) -> Value:
    grad, x = exact(ctx, grad, self)
    return select(_within(x, lambd), _zero(grad), grad)


# --- exponential units -------------------------------------------------------


def _elu_of(x: Value, alpha: Value, scale: Value, input_scale: Value) -> Value:
    negative = lax.mul(lax.expm1(lax.mul(x, like(x, input_scale))), like(x, alpha * scale))
    return select(lax.le(x, _zero(x)), negative, lax.mul(x, like(x, scale)))


@rule("elu")
def _elu(
    ctx: RuleContext, self: Value, alpha: Value = 1, scale: Value = 1, input_scale: Value = 1
) -> Value:
    return _elu_of(widened(self), alpha, scale, input_scale)


@rule("celu")
def _celu(ctx: RuleContext, self: Value, alpha: Value = 1.0) -> Value:
    return _elu_of(widened(self), alpha, 1.0, 1.0 / alpha)


@rule("elu_backward")
def _elu_backward(
    ctx: RuleContext,
    grad: Value,
    alpha: Value,
    scale: Value,
    input_scale: Value,
    is_result: bool,
    self_or_result: Value,
) -> Value:
    grad, x = computed(ctx, grad, self_or_result)
    negative = like(x, alpha * scale)
    if is_result:
        slope = lax.mul(like(x, input_scale), lax.add(x, negative))
    else:
        inner = lax.exp(lax.mul(x, like(x, input_scale)))
        slope = lax.mul(like(x, input_scale * alpha * scale), inner)
    below = lax.le(x, _zero(x))
    return select(below, lax.mul(grad, slope), lax.mul(grad, like(x, scale)))


@rule("softplus")
def _softplus(ctx: RuleContext, self: Value, beta: Value = 1, threshold: Value = 20) -> Value:
    x = widened(self)
    scaled = lax.mul(x, like(x, beta))
    soft = lax.div(lax.log1p(lax.exp(scaled)), like(x, beta))
    return select(lax.gt(scaled, like(x, threshold)), x, soft)


@rule("softplus_backward")
def _softplus_backward(
    ctx: RuleContext, grad: Value, self: Value, beta: Value, threshold: Value
) -> Value:
    grad, x = computed(ctx, grad, self)
    scaled = lax.mul(x, like(x, beta))
    soft = lax.mul(grad, lax.logistic(scaled))
    return select(lax.gt(scaled, like(x, threshold)), grad, soft)


@rule("log_sigmoid_forward")
def _log_sigmoid(ctx: RuleContext, self: Value) -> tuple[Value, Value]:
    x = widened(self)
    decay = lax.exp(lax.neg(lax.abs(x)))
    output = lax.sub(lax.min(x, _zero(x)), lax.log1p(decay))
    # The buffer is what PyTorch's CPU saves for its gradient; CUDA's is empty. Ours has
    # the shape that was promised, and the gradient does not read it.
    buffer = ctx.out[1].shape
    return output, decay if buffer == x.shape else lax.full(buffer, 0, x.dtype)


@rule("log_sigmoid_backward")
def _log_sigmoid_backward(ctx: RuleContext, grad: Value, self: Value, buffer: Value) -> Value:
    x, grad = widened(self), widened(grad)
    return lax.mul(grad, lax.logistic(lax.neg(x)))


# --- smooth gates ------------------------------------------------------------


@rule("sigmoid_backward")
def _sigmoid_backward(ctx: RuleContext, grad: Value, output: Value) -> Value:
    grad, y = computed(ctx, grad, output)
    slope = lax.mul(lax.sub(like(y, 1), y), y)
    return lax.mul(grad, lax.conj(slope) if is_complex(dtype_of(y)) else slope)


@rule("tanh_backward")
def _tanh_backward(ctx: RuleContext, grad: Value, output: Value) -> Value:
    grad, y = computed(ctx, grad, output)
    slope = lax.sub(like(y, 1), lax.mul(y, y))
    return lax.mul(grad, lax.conj(slope) if is_complex(dtype_of(y)) else slope)


@rule("silu")
def _silu(ctx: RuleContext, self: Value) -> Value:
    x = widened(self)
    return lax.mul(x, lax.logistic(x))


@rule("silu_backward")
def _silu_backward(ctx: RuleContext, grad: Value, self: Value) -> Value:
    grad, x = computed(ctx, grad, self)
    gate, one = lax.logistic(x), like(x, 1)
    inner = lax.add(one, lax.mul(x, lax.sub(one, gate)))
    return lax.mul(lax.mul(grad, gate), inner)


@rule("mish")
def _mish(ctx: RuleContext, self: Value) -> Value:
    x = widened(self)
    return lax.mul(x, lax.tanh(lax.log1p(lax.exp(x))))


@rule("mish_backward")
def _mish_backward(ctx: RuleContext, grad: Value, self: Value) -> Value:
    grad, x = computed(ctx, grad, self)
    gate, t = lax.logistic(x), lax.tanh(lax.log1p(lax.exp(x)))
    slope = lax.mul(lax.mul(x, gate), lax.sub(like(x, 1), lax.mul(t, t)))
    return lax.mul(grad, lax.add(t, slope))


@rule("hardswish")
def _hardswish(ctx: RuleContext, self: Value) -> Value:
    x = widened(self)
    return lax.mul(x, _ramp(x))


@rule("hardsigmoid")
def _hardsigmoid(ctx: RuleContext, self: Value) -> Value:
    return _ramp(widened(self))


# --- GELU (Hendrycks and Gimpel, arXiv:1606.08415) ---------------------------

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def _gelu_tanh(x: Value) -> tuple[Value, Value]:
    """The tanh approximation's ``tanh(inner)`` and ``x * x``."""
    square = lax.mul(x, x)
    cubic = lax.add(like(x, 1), lax.mul(square, like(x, _TANH_CUBIC)))
    return lax.tanh(lax.mul(lax.mul(x, like(x, _TANH_SCALE)), cubic)), square


def _normal_cdf(x: Value) -> Value:
    half = like(x, 0.5)
    return lax.mul(half, lax.add(like(x, 1), lax.erf(lax.mul(x, like(x, math.sqrt(0.5))))))


@rule("gelu")
def _gelu(ctx: RuleContext, self: Value, approximate: str = "none") -> Value:
    x = widened(self)
    if approximate == "none":
        return lax.mul(x, _normal_cdf(x))
    t, _ = _gelu_tanh(x)
    return lax.mul(lax.mul(x, like(x, 0.5)), lax.add(like(x, 1), t))


@rule("gelu_backward")
def _gelu_backward(ctx: RuleContext, grad: Value, self: Value, approximate: str = "none") -> Value:
    grad, x = computed(ctx, grad, self)
    if approximate == "none":
        density = lax.exp(lax.mul(lax.mul(x, x), like(x, -0.5)))
        density = lax.mul(density, like(x, 1 / math.sqrt(2 * math.pi)))
        return lax.mul(grad, lax.add(_normal_cdf(x), lax.mul(x, density)))
    t, square = _gelu_tanh(x)
    one, half = like(x, 1), like(x, 0.5)
    left = lax.mul(half, lax.add(one, t))
    inner = lax.add(one, lax.mul(square, like(x, 3 * _TANH_CUBIC)))
    inner = lax.mul(lax.mul(x, like(x, _TANH_SCALE)), inner)
    right = lax.mul(lax.mul(half, lax.sub(one, lax.mul(t, t))), inner)
    return lax.mul(grad, lax.add(left, right))


# --- GLU ---------------------------------------------------------------------


def _halves(x: Value, dim: int) -> tuple[Value, Value]:
    size = x.shape[dim] // 2
    axis = dim % x.ndim
    return lax.slice_in_dim(x, 0, size, axis=axis), lax.slice_in_dim(x, size, None, axis=axis)


@rule("glu")
def _glu(ctx: RuleContext, self: Value, dim: int = -1) -> Value:
    value, gate = _halves(widened(self), dim)
    return lax.mul(value, lax.logistic(gate))


@rule("glu_backward")
def _glu_backward(ctx: RuleContext, grad: Value, self: Value, dim: int) -> Value:
    grad, x = widened(grad), widened(self)
    value, gate = _halves(x, dim)
    gate = lax.logistic(gate)
    passed = lax.mul(grad, gate)
    inner = lax.mul(lax.mul(passed, lax.sub(like(x, 1), gate)), value)
    return lax.concatenate((passed, inner), dim % x.ndim)


@rule("glu_jvp")
def _glu_jvp(ctx: RuleContext, glu: Value, x: Value, dx: Value, dim: int) -> Value:
    dtype = dtype_of(widened(x))
    glu, x, dx = (cast(v, dtype) for v in (glu, x, dx))
    _, gate = _halves(x, dim)
    value_step, gate_step = _halves(dx, dim)
    gate = lax.logistic(gate)
    inner = lax.mul(glu, lax.sub(like(x, 1), gate))
    return lax.add(lax.mul(value_step, gate), lax.mul(inner, gate_step))


# --- dropout's gradient ------------------------------------------------------


@rule("native_dropout_backward")
def _native_dropout_backward(ctx: RuleContext, grad: Value, mask: Value, scale: Value) -> Value:
    grad = cast(grad, "float32") if dtype_of(grad) == "bool" else widened(grad)
    grad, mask = spread(grad, cast(mask, dtype_of(grad)))
    return lax.mul(lax.mul(grad, mask), like(grad, scale))
