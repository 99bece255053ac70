"""Convolutions of one to three dimensions, transposed or not, and their gradients.

Spellings measured on XLA's CPU platform, two x86 cores, float32, best of interleaved
runs, as a ratio to PyTorch's CPU kernel (above 1 is faster):

===================================  =====  ==============  ===========  ===========
shapes                               NCHW   NCHW columns    NHWC columns row columns
===================================  =====  ==============  ===========  ===========
[64,1,8,8] x [16,1,3,3]              0.28   2.0             0.6          -
[32,3,32,32] x [16,3,3,3]            0.24   0.6             -            -
[16,4,16,16] x [32,4,3,3]            0.67   0.6             -            -
[64,16,8,8] x [32,16,3,3]            0.51   0.4             0.4          0.5
[16,64,16,16] x [64,64,3,3]          0.48   0.5             0.35         0.66
[8,32,32,32] x [32,32,3,3]           0.54   0.5             0.3          0.57
===================================  =====  ==============  ===========  ===========

"Columns" unrolls the windows into a matrix and multiplies once a sample; "row
columns" unrolls one dimension and adds three products. NHWC convolutions, Winograd
products (0.3 to 0.6) and nine shifted products (0.3 to 0.64) gain nothing either.
Columns are therefore written out only for up to three input channels, and for
grouped convolutions, where XLA reaches 0.15 and its weight gradient 0.01 (columns:
0.4 and 0.4). One channel a group is a sum of shifted inputs: 1.1 to 1.5, where the
convolution reaches 0.04. All of this is for where PyTorch's own CPU kernels cannot be
called (``Platform.call``); where they can, they take the rest from six million products
on, at 0.7 to 1.
A 1x1 convolution as a batched product is 1.3 to 2.4 times as fast as the convolution, and
its weight gradient, summed over the batch, 4 times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fuse.backends.convolution import Window, backward, backward_overrideable, forward
from fuse.backends.xla.rules.matmul import contract, precision_of_convolutions
from fuse.backends.xla.rules.registry import RuleContext, rule

_FEW_CHANNELS = 3
_MOST_TAPS = 49
_KERNEL_PRODUCTS = 6_000_000


Spelling = Callable[[RuleContext, jax.Array, jax.Array, Window], jax.Array]


def convolve(ctx: RuleContext, x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    """XLA convolution of ``x[N, C, *spatial]``, without bias."""
    sizes = weight.shape[2:]
    if not window.transposed:
        strides, input_dilation = window.stride, (1,) * len(sizes)
        padding = [(p, p) for p in window.padding]
    else:
        weight = _flipped(weight, window.groups)
        strides, input_dilation = (1,) * len(sizes), window.stride
        reach = [d * (k - 1) for d, k in zip(window.dilation, sizes, strict=True)]
        padding = [
            (r - p, r - p + extra)
            for r, p, extra in zip(reach, window.padding, window.output_padding, strict=True)
        ]
    if not ctx.platform.convolves(str(x.dtype)):
        # Of integers, which its compiler refuses: windows, then products.
        edges = [(*p, d - 1) for p, d in zip(padding, input_dilation, strict=True)]
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *edges])
        none = (0,) * len(sizes)
        plain = Window.of(len(sizes), strides, none, window.dilation, False, none, window.groups)
        return _columns(ctx, x, weight, plain)
    return lax.conv_general_dilated(
        x,
        weight,
        strides,
        padding,
        lhs_dilation=input_dilation,
        rhs_dilation=window.dilation,
        feature_group_count=window.groups,
        precision=precision_of_convolutions(ctx),
    )


def _flipped(weight: jax.Array, groups: int) -> jax.Array:
    """Weight ``[C, O/groups, *k]`` of a transposed one as ``[O, C/groups, *k]``, flipped."""
    channels, each, *sizes = weight.shape
    weight = lax.rev(weight, tuple(range(2, weight.ndim)))
    weight = weight.reshape(groups, channels // groups, each, *sizes).swapaxes(1, 2)
    return weight.reshape(groups * each, channels // groups, *sizes)


def _pointwise(ctx: RuleContext, x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    """A 1x1 convolution as one product a sample."""
    batch, channels, *spatial = x.shape
    matrix = jnp.broadcast_to(weight.reshape(1, -1, channels), (batch, weight.shape[0], channels))
    flat = x.reshape(batch, channels, math.prod(spatial))
    product = contract(ctx, matrix, flat, (((2,), (1,)), ((0,), (0,))))
    return product.reshape(batch, weight.shape[0], *spatial)


def _taps(x: jax.Array, sizes: tuple[int, ...], window: Window) -> list[jax.Array]:
    """For every position in the kernel, row-major, the elements of padded ``x`` under it."""
    padded = jnp.pad(x, [(0, 0), (0, 0), *((p, p) for p in window.padding)])
    spans = [d * (k - 1) + 1 for d, k in zip(window.dilation, sizes, strict=True)]
    rest = [n - span for n, span in zip(padded.shape[2:], spans, strict=True)]
    last = [r // s * s for r, s in zip(rest, window.stride, strict=True)]
    taps = []
    for corner in itertools.product(*(range(k) for k in sizes)):
        start = [i * d for i, d in zip(corner, window.dilation, strict=True)]
        limit = [i + e + 1 for i, e in zip(start, last, strict=True)]
        strides = (1, 1, *window.stride)
        taps.append(lax.slice(padded, (0, 0, *start), (*x.shape[:2], *limit), strides))
    return taps


def _columns(ctx: RuleContext, x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    """Convolution as unrolled windows times the weight, one product a sample and group."""
    taps = _taps(x, weight.shape[2:], window)
    batch, groups, spatial = x.shape[0], window.groups, taps[0].shape[2:]
    rows, inner = weight.shape[0] // groups, math.prod(weight.shape[1:])
    columns = jnp.stack(taps, 2).reshape(batch * groups, inner, math.prod(spatial))
    matrix = jnp.broadcast_to(weight.reshape(groups, rows, inner), (batch, groups, rows, inner))
    matrix = matrix.reshape(batch * groups, rows, inner)
    product = contract(ctx, matrix, columns, (((2,), (1,)), ((0,), (0,))))
    return product.reshape(batch, weight.shape[0], *spatial)


def _depthwise(ctx: RuleContext, x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    """One input channel a group: a weighted sum of the taps."""
    batch, channels = x.shape[:2]
    taps = _taps(x, weight.shape[2:], window)
    ones = (1,) * len(window.stride)
    factors = weight.reshape(channels, weight.shape[0] // channels, len(taps))
    terms = [
        tap[:, :, None] * factors[:, :, index].reshape(*factors.shape[:2], *ones)
        for index, tap in enumerate(taps)
    ]
    return sum(terms[1:], start=terms[0]).reshape(batch, weight.shape[0], *taps[0].shape[2:])


def _attributes(window: Window) -> dict[str, tuple[int, ...] | int]:
    return {
        "stride": window.stride,
        "padding": window.padding,
        "dilation": window.dilation,
        "output_padding": window.output_padding,
        "transposed": window.transposed,
        "groups": window.groups,
    }


def _by_kernel(
    ctx: RuleContext, x: jax.Array, weight: jax.Array, out: tuple[int, ...], window: Window
) -> bool:
    """Whether PyTorch's CPU kernel is the fastest: for what is no plain product, has more than
    one channel a group, and is large enough to be worth waking a thread."""
    shape = x.shape if window.transposed else out
    return (
        ctx.platform.has_kernel("convolution", x, weight)
        and 1 <= len(window.stride) <= 3
        and not _is_pointwise(weight, window)
        and (weight.shape[1] > 1 or window.groups == 1 or window.transposed)
        and weight.size * math.prod(shape) // shape[1] >= _KERNEL_PRODUCTS
    )


def _kernel(ctx: RuleContext, x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    """The convolution by PyTorch's CPU kernel."""
    out = jax.ShapeDtypeStruct(ctx.out[0].shape, x.dtype)
    result: jax.Array = ctx.platform.call("convolution", out, x, weight, **_attributes(window))
    return result


def _kernel_gradient(
    ctx: RuleContext, which: int, grad: jax.Array, x: jax.Array, weight: jax.Array, window: Window
) -> jax.Array:
    """The gradient of the input (0) or the weight (1) by PyTorch's CPU kernel."""
    like = (x, weight)[which]
    result: jax.Array = ctx.platform.call(
        "convolution_gradient",
        jax.ShapeDtypeStruct(like.shape, like.dtype),
        grad,
        x,
        weight,
        which=which,
        **_attributes(window),
    )
    return result


def _forward(ctx: RuleContext, weight: jax.Array, window: Window) -> Spelling:
    """The fastest spelling of the convolution itself, in XLA's terms."""
    if ctx.platform.name != "cpu" or window.transposed:
        return convolve
    if _is_pointwise(weight, window):
        return _pointwise
    small = math.prod(weight.shape[2:]) <= _MOST_TAPS
    if window.groups == 1:
        return _columns if small and weight.shape[1] <= _FEW_CHANNELS else convolve
    if not small:
        return convolve
    return _depthwise if weight.shape[1] == 1 else _columns


def _backward(ctx: RuleContext, weight: jax.Array, window: Window) -> Spelling:
    """The spelling whose transpose is the fastest gradient."""
    return convolve if window.groups == 1 else _forward(ctx, weight, window)


def _is_pointwise(weight: jax.Array, window: Window) -> bool:
    """Whether every output element reads one input element a channel."""
    return (
        not window.transposed
        and window.groups == 1
        and all(size == 1 for size in weight.shape[2:])
        and not any(window.padding)
        and all(stride == 1 for stride in window.stride)
    )


def _wide(ctx: RuleContext, *values: jax.Array) -> list[jax.Array]:
    """Half precision as float32 on the CPU platform; accelerators accumulate so themselves."""
    return [ctx.widened(value) if ctx.platform.name == "cpu" else value for value in values]


@rule("convolution", "convolution_overrideable")
@forward
def _convolution(
    ctx: RuleContext, x: jax.Array, weight: jax.Array, bias: jax.Array | None, window: Window
) -> jax.Array:
    x, weight = _wide(ctx, x, weight)
    if math.prod(ctx.out[0].shape) == 0 or x.size == 0:
        result = jnp.zeros(ctx.out[0].shape, x.dtype)
    elif _by_kernel(ctx, x, weight, ctx.out[0].shape, window):
        result = _kernel(ctx, x, weight, window)
    else:
        result = _forward(ctx, weight, window)(ctx, x, weight, window)
    if bias is None:
        return result
    return result + bias.astype(result.dtype).reshape(-1, *(1,) * (x.ndim - 2))


def _gradients(
    ctx: RuleContext,
    grad: jax.Array,
    x: jax.Array,
    weight: jax.Array,
    window: Window,
    mask: tuple[bool, ...],
) -> tuple[jax.Array | None, jax.Array | None, jax.Array | None]:
    """Gradients of input, weight and bias; ``None`` where the mask asks for none."""
    grad, x, weight = _wide(ctx, grad, x, weight)
    wants_input, wants_weight, wants_bias = mask
    grad_input = grad_weight = grad_bias = None
    empty = grad.size == 0 or x.size == 0
    if wants_input:
        grad_input = jnp.zeros_like(x) if empty else _grad_input(ctx, grad, x, weight, window)
    if wants_weight:
        grad_weight = (
            jnp.zeros_like(weight) if empty else _grad_weight(ctx, grad, x, weight, window)
        )
    if wants_bias:
        grad_bias = jnp.sum(grad, (0, *range(2, grad.ndim)))
    return grad_input, grad_weight, grad_bias


def _transpose(
    function: Callable[[jax.Array], jax.Array],
    at: jax.Array | jax.ShapeDtypeStruct,
    grad: jax.Array,
) -> jax.Array:
    """Apply the transpose of a linear function of an array like ``at`` to ``grad``."""
    (result,) = jax.linear_transpose(function, at)(grad)
    transposed: jax.Array = result
    return transposed


def _grad_input(
    ctx: RuleContext, grad: jax.Array, x: jax.Array, weight: jax.Array, window: Window
) -> jax.Array:
    if ctx.platform.name == "cpu" and _is_pointwise(weight, window):
        return _pointwise(ctx, grad, weight.swapaxes(0, 1), window)
    if _by_kernel(ctx, x, weight, grad.shape, window):
        return _kernel_gradient(ctx, 0, grad, x, weight, window)
    spelling = _backward(ctx, weight, window)
    return _transpose(lambda value: spelling(ctx, value, weight, window), x, grad)


def _grad_weight(
    ctx: RuleContext, grad: jax.Array, x: jax.Array, weight: jax.Array, window: Window
) -> jax.Array:
    if ctx.platform.name == "cpu" and _is_pointwise(weight, window):
        rows = grad.reshape(*grad.shape[:2], -1)
        columns = x.reshape(*x.shape[:2], -1)
        if x.shape[0] * weight.size <= 4 * (grad.size + x.size):
            product = contract(ctx, rows, columns, (((2,), (2,)), ((0,), (0,))))
            return jnp.sum(product, 0).reshape(weight.shape)
        # One product over batch and space keeps memory small where a product a sample is large.
        return contract(ctx, rows, columns, (((0, 2), (0, 2)), ((), ()))).reshape(weight.shape)
    if _by_kernel(ctx, x, weight, grad.shape, window):
        return _kernel_gradient(ctx, 1, grad, x, weight, window)
    spelling = _backward(ctx, weight, window)
    return _transpose(lambda value: spelling(ctx, x, value, window), weight, grad)


rule("convolution_backward")(backward(_gradients))
rule("convolution_backward_overrideable")(backward_overrideable(_gradients))


@rule("conv_tbc")
def _conv_tbc(
    ctx: RuleContext, x: jax.Array, weight: jax.Array, bias: jax.Array, pad: int = 0
) -> jax.Array:
    """Convolution of ``x[time, batch, channels]`` with ``weight[k, channels, out]``."""
    x, weight = _wide(ctx, x, weight)
    if not ctx.platform.convolves(str(x.dtype)):
        window = Window.of(1, (1,), (pad,), (1,), False, (0,), 1)
        result = _columns(ctx, x.transpose(1, 2, 0), weight.transpose(2, 1, 0), window)
        return result.transpose(2, 0, 1) + bias.astype(result.dtype)
    result = lax.conv_general_dilated(
        x, weight, (1,), [(pad, pad)], dimension_numbers=("WNC", "WIO", "WNC"),
        precision=precision_of_convolutions(ctx),
    )  # fmt: skip
    return result + bias.astype(result.dtype)
