"""NumPy rules of activation functions and their gradients.

Each follows the formula of PyTorch's CPU kernel (aten/src/ATen/native/cpu/Activation.cpp)
including which side of a kink the kink itself belongs to and where NaN goes.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from fuse.backends.numpy.rules.context import RuleContext
from fuse.backends.numpy.rules.elementwise import larger, like, smaller
from fuse.backends.numpy.rules.pointwise import sigmoid
from fuse.backends.numpy.rules.registry import Scalar, Value, rule

Array = np.ndarray

# --- linear pieces -----------------------------------------------------------


@rule("relu")
def _relu(ctx: RuleContext, self: Array) -> Array:
    return larger(self, like(self, 0))


@rule("leaky_relu")
def _leaky_relu(ctx: RuleContext, self: Array, negative_slope: float = 0.01) -> Array:
    x = ctx.widened(self)
    return np.where(x > 0, x, x * like(x, negative_slope))


@rule("leaky_relu_backward")
def _leaky_relu_backward(
    ctx: RuleContext, grad: Array, self: Array, negative_slope: float, self_is_result: bool
) -> Array:
    grad, x = ctx.computed(grad, self)
    return np.where(x > 0, grad, grad * like(x, negative_slope))


@rule("_prelu_kernel")
def _prelu(ctx: RuleContext, self: Array, weight: Array) -> Array:
    x, weight = ctx.computed(self, weight)
    return np.where(x > 0, x, weight * x)


@rule("_prelu_kernel_backward")
def _prelu_backward(
    ctx: RuleContext, grad: Array, self: Array, weight: Array
) -> tuple[Array, Array]:
    grad, x, weight = ctx.computed(grad, self, weight)
    return np.where(x > 0, grad, weight * grad), np.where(x > 0, 0, x * grad)


@rule("rrelu_with_noise_backward")
def _rrelu_backward(
    ctx: RuleContext,
    grad: Array,
    self: Array,
    noise: Array,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> Array:
    if training:
        return np.multiply(*ctx.computed(grad, noise))
    grad, x = ctx.computed(grad, self)
    return np.where(x > 0, grad, grad * like(x, (lower + upper) / 2))


@rule("threshold")
def _threshold(ctx: RuleContext, self: Array, threshold: Scalar, value: Scalar) -> Array:
    return np.where(self <= like(self, threshold), like(self, value), self)


@rule("threshold_backward")
def _threshold_backward(ctx: RuleContext, grad: Array, self: Array, threshold: Scalar) -> Array:
    grad, x = ctx.promoted(grad, self)
    return np.where(x <= like(x, threshold), like(grad, 0), grad)


@rule("hardtanh")
def _hardtanh(ctx: RuleContext, self: Array, low: Scalar = -1, high: Scalar = 1) -> Array:
    return smaller(larger(self, like(self, low)), like(self, high))


@rule("hardtanh_backward")
def _hardtanh_backward(
    ctx: RuleContext, grad: Array, self: Array, low: Scalar, high: Scalar
) -> Array:
    grad, x = ctx.promoted(grad, self)
    return np.where((x <= like(x, low)) | (x >= like(x, high)), like(grad, 0), grad)


def _ramp(x: Array) -> Array:
    """``clamp(x + 3, 0, 6) / 6``."""
    return np.minimum(np.maximum(x + 3, 0), 6) / 6


@rule("hardsigmoid")
def _hardsigmoid(ctx: RuleContext, self: Array) -> Array:
    return _ramp(ctx.widened(self))


@rule("hardsigmoid_backward")
def _hardsigmoid_backward(ctx: RuleContext, grad: Array, self: Array) -> Array:
    grad, x = ctx.computed(grad, self)
    return np.where(np.abs(x) < 3, grad / 6, 0)


@rule("hardswish")
def _hardswish(ctx: RuleContext, self: Array) -> Array:
    x = ctx.widened(self)
    return x * _ramp(x)


@rule("hardswish_backward")
def _hardswish_backward(ctx: RuleContext, grad: Array, self: Array) -> Array:
    grad, x = ctx.computed(grad, self)
    right = np.where(x < 3, grad * (x / 3 + 0.5), grad)
    return np.where(x <= -3, 0, right)


def _within(x: Array, bound: Value) -> Array:
    """Whether ``-bound <= x <= bound``; false for NaN."""
    bound = like(x, bound)
    return (x >= -bound) & (x <= bound)


@rule("hardshrink")
def _hardshrink(ctx: RuleContext, self: Array, lambd: Scalar = 0.5) -> Array:
    return np.where(_within(self, lambd), like(self, 0), self)


@rule("softshrink")
def _softshrink(ctx: RuleContext, self: Array, lambd: Scalar = 0.5) -> Array:
    x = ctx.widened(self)
    bound = like(x, lambd)
    return np.where(x > bound, x - bound, np.where(x < -bound, x + bound, x * 0))


@rule("hardshrink_backward", "softshrink_backward")
def _shrink_backward(ctx: RuleContext, grad: Array, self: Array, lambd: Scalar) -> Array:
    grad, x = ctx.promoted(grad, self)
    return np.where(_within(x, lambd), like(grad, 0), grad)


# --- exponential units -------------------------------------------------------


def _elu_of(x: Array, alpha: Scalar, scale: Scalar, input_scale: Scalar) -> Array:
    negative = np.expm1(x * like(x, input_scale)) * like(x, alpha * scale)
    return np.where(x <= 0, negative, x * like(x, scale))


@rule("elu")
def _elu(
    ctx: RuleContext, self: Array, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1
) -> Array:
    return _elu_of(ctx.widened(self), alpha, scale, input_scale)


@rule("celu")
def _celu(ctx: RuleContext, self: Array, alpha: Scalar = 1.0) -> Array:
    return _elu_of(ctx.widened(self), alpha, 1.0, 1.0 / alpha)


@rule("elu_backward")
def _elu_backward(
    ctx: RuleContext,
    grad: Array,
    alpha: Scalar,
    scale: Scalar,
    input_scale: Scalar,
    is_result: bool,
    self_or_result: Array,
) -> Array:
    grad, x = ctx.computed(grad, self_or_result)
    if is_result:
        slope = like(x, input_scale) * (x + like(x, alpha * scale))
    else:
        slope = like(x, input_scale * alpha * scale) * np.exp(x * like(x, input_scale))
    return np.where(x <= 0, grad * slope, grad * like(x, scale))


@rule("softplus")
def _softplus(ctx: RuleContext, self: Array, beta: Scalar = 1, threshold: Scalar = 20) -> Array:
    x = ctx.widened(self)
    scaled = x * like(x, beta)
    return np.where(scaled > like(x, threshold), x, np.log1p(np.exp(scaled)) / like(x, beta))


@rule("softplus_backward")
def _softplus_backward(
    ctx: RuleContext, grad: Array, self: Array, beta: Scalar, threshold: Scalar
) -> Array:
    grad, x = ctx.computed(grad, self)
    scaled = x * like(x, beta)
    return np.where(scaled > like(x, threshold), grad, grad * sigmoid(scaled))


@rule("log_sigmoid_forward")
def _log_sigmoid(ctx: RuleContext, self: Array) -> tuple[Array, Array]:
    x = ctx.widened(self)
    decay = np.exp(-np.abs(x))
    # The buffer is what PyTorch's CPU saves for its gradient; CUDA's is empty. Ours has the
    # shape that was promised, and the gradient does not read it.
    shape = ctx.out[1].shape
    return np.minimum(x, 0) - np.log1p(decay), decay if shape == x.shape else np.zeros(shape)


@rule("log_sigmoid_backward")
def _log_sigmoid_backward(ctx: RuleContext, grad: Array, self: Array, buffer: Array) -> Array:
    return ctx.widened(grad) * sigmoid(-ctx.widened(self))


# --- smooth gates ------------------------------------------------------------


@rule("sigmoid_backward")
def _sigmoid_backward(ctx: RuleContext, grad: Array, output: Array) -> Array:
    grad, y = ctx.computed(grad, output)
    return grad * np.conj((1 - y) * y)


@rule("tanh_backward")
def _tanh_backward(ctx: RuleContext, grad: Array, output: Array) -> Array:
    grad, y = ctx.computed(grad, output)
    return grad * np.conj(1 - y * y)


@rule("silu")
def _silu(ctx: RuleContext, self: Array) -> Array:
    x = ctx.widened(self)
    return x * sigmoid(x)


@rule("silu_backward")
def _silu_backward(ctx: RuleContext, grad: Array, self: Array) -> Array:
    grad, x = ctx.computed(grad, self)
    gate = sigmoid(x)
    return grad * gate * (1 + x * (1 - gate))


@rule("mish")
def _mish(ctx: RuleContext, self: Array) -> Array:
    x = ctx.widened(self)
    return x * np.tanh(np.log1p(np.exp(x)))


@rule("mish_backward")
def _mish_backward(ctx: RuleContext, grad: Array, self: Array) -> Array:
    grad, x = ctx.computed(grad, self)
    t = np.tanh(np.log1p(np.exp(x)))
    return grad * (t + x * sigmoid(x) * (1 - t * t))


# --- GELU (Hendrycks and Gimpel, arXiv:1606.08415) ---------------------------

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def _normal_cdf(x: Array) -> Array:
    return 0.5 * (1 + special.erf(x * math.sqrt(0.5)))


@rule("gelu")
def _gelu(ctx: RuleContext, self: Array, approximate: str = "none") -> Array:
    x = ctx.widened(self)
    if approximate == "none":
        return x * _normal_cdf(x)
    return 0.5 * x * (1 + np.tanh(_TANH_SCALE * x * (1 + _TANH_CUBIC * x * x)))


@rule("gelu_backward")
def _gelu_backward(ctx: RuleContext, grad: Array, self: Array, approximate: str = "none") -> Array:
    grad, x = ctx.computed(grad, self)
    if approximate == "none":
        density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return grad * (_normal_cdf(x) + x * density)
    t = np.tanh(_TANH_SCALE * x * (1 + _TANH_CUBIC * x * x))
    inner_slope = _TANH_SCALE * (1 + 3 * _TANH_CUBIC * x * x)
    return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner_slope)


# --- GLU ---------------------------------------------------------------------


@rule("glu")
def _glu(ctx: RuleContext, self: Array, dim: int = -1) -> Array:
    value, gate = np.split(ctx.widened(self), 2, axis=dim)
    return value * sigmoid(gate)


@rule("glu_backward")
def _glu_backward(ctx: RuleContext, grad: Array, self: Array, dim: int) -> Array:
    grad = ctx.widened(grad)
    value, gate = np.split(ctx.widened(self), 2, axis=dim)
    gate = sigmoid(gate)
    return np.concatenate((grad * gate, grad * gate * (1 - gate) * value), axis=dim)


@rule("glu_jvp")
def _glu_jvp(ctx: RuleContext, glu: Array, x: Array, dx: Array, dim: int) -> Array:
    glu, x, dx = ctx.computed(glu, x, dx)
    gate = sigmoid(np.split(x, 2, axis=dim)[1])
    value_step, gate_step = np.split(dx, 2, axis=dim)
    return value_step * gate + glu * (1 - gate) * gate_step


# --- dropout's gradient ------------------------------------------------------


@rule("native_dropout_backward")
def _native_dropout_backward(ctx: RuleContext, grad: Array, mask: Array, scale: float) -> Array:
    grad = ctx.widened(grad)
    return grad * mask.astype(grad.dtype) * like(grad, scale)
