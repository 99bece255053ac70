"""Shared steps of the elementwise rules: dtypes, broadcasting, PyTorch's conversions.

A *value* here is a ``jax.Array`` tracer, or a NumPy scalar that stands for a Python
number: ``jax.lax`` takes a NumPy scalar of the right dtype as a literal, which keeps
the traced program free of broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from fuse.backends.xla.rules.context import RuleContext
from fuse.versions import FLOAT8_MOST, float8_saturates

Value = Any

WIDE = {"float16": "float32", "bfloat16": "float32", "complex32": "complex64"}
REAL_OF = {"complex64": "float32", "complex128": "float64"}

# A float outside the range of int32 or int64 (and NaN) converts to the smallest integer
# on the x86 CPUs PyTorch runs on ("integer indefinite" of CVTTSS2SI); narrower integers
# take the low bits of that conversion.
_INTERMEDIATE = {"int8": "int32", "uint8": "int64", "int16": "int32", "uint16": "int32"}
_INTERMEDIATE["uint32"] = "int64"

# Where subnormal numbers begin, for dtypes whose arithmetic takes them for zero; half precision is
# computed in float32: see fuse.backends.subnormals.
_TINY = {"float32": 2.0**-126, "bfloat16": 2.0**-126, "float64": 2.0**-1022}

# The 8-bit float that has neither infinities nor room for what is past its largest number.
_SATURATED = "float8_e4m3fn" if float8_saturates() else ""


def is_float(dtype: str) -> bool:
    """Whether ``dtype`` is a real floating-point type, 8-bit ones included."""
    return "float" in dtype


def is_complex(dtype: str) -> bool:
    """Whether ``dtype`` is a complex type."""
    return dtype.startswith("complex")


def is_integer(dtype: str) -> bool:
    """Whether ``dtype`` is an integer type; bool is not."""
    return "int" in dtype


def is_number(value: Value) -> bool:
    """Whether ``value`` is a number known while tracing."""
    return isinstance(value, (bool, int, float, complex, np.generic))


def dtype_of(value: Value) -> str:
    """The dtype's PyTorch name."""
    return str(value.dtype)


def cast(value: Value, dtype: str) -> Value:
    """Convert an array or a number to ``dtype``; integers wrap, a number stays a literal."""
    if is_number(value):
        if not is_complex(dtype) and isinstance(value, (complex, np.complexfloating)):
            value = value.real
        if dtype in _TINY and abs(value) < _TINY[dtype]:
            value = 0.0 * value  # XLA works constants out with all their digits
        if dtype == _SATURATED:
            value = np.clip(value, -FLOAT8_MOST, FLOAT8_MOST)
        with np.errstate(over="ignore", invalid="ignore"):  # 1e300 is inf in float32
            return np.asarray(value).astype(dtype)[()]
    if value.dtype == dtype:
        return value
    if value.dtype == np.bool_ and not is_integer(dtype):
        # XLA makes a selection of a product with a converted bool: inf * 0 would be 0 and
        # not NaN. It does not see through a conversion by way of an integer.
        value = lax.convert_element_type(value, np.uint8)
    if value.ndim == 0 and dtype_of(value) == "float64" and dtype in _TINY:
        # A number that varies: XLA compares it, and what it is converted to, as float64.
        small = lax.lt(lax.abs(value), np.float64(_TINY[dtype]))
        value = select(small, np.float64(0), value)
    if dtype == _SATURATED:
        value = cast(value, "float32")
        value = lax.clamp(like(value, -FLOAT8_MOST), value, like(value, FLOAT8_MOST))
    return lax.convert_element_type(value, np.dtype(dtype))


def convert(value: Value, dtype: str) -> Value:
    """Convert as ``Tensor.to(dtype)`` does on CPU, for any pair of dtypes.

    Complex to real drops the imaginary part; anything nonzero, NaN too, is True; a float
    becomes an integer by truncation, and out of range as x86 does it.
    """
    if is_number(value):
        return cast(value, dtype)
    source = dtype_of(value)
    if source == dtype:
        return value
    if is_complex(source) and not is_complex(dtype):
        if dtype == "bool":
            return lax.ne(value, cast(0, source))
        value, source = lax.real(value), REAL_OF[source]
    if dtype == "bool":
        return lax.ne(value, cast(0, source))
    if is_float(source) and is_integer(dtype):
        return _truncate(value, dtype)
    return cast(value, dtype)


def _truncate(value: Value, dtype: str) -> Value:
    """Convert a float array to the integer type ``dtype``, as C++ does on x86."""
    value = cast(value, WIDE.get(dtype_of(value), dtype_of(value)))
    if dtype == "uint64":
        signed = cast(cast(value, "int64"), "uint64")
        return select(lax.lt(value, cast(0, dtype_of(value))), signed, cast(value, "uint64"))
    target = _INTERMEDIATE.get(dtype, dtype)
    limit = 2.0 ** (31 if target == "int32" else 63)
    inside = lax.lt(lax.abs(value), cast(limit, dtype_of(value)))
    return cast(select(inside, cast(value, target), int(np.iinfo(target).min)), dtype)


def spread(*values: Value) -> tuple[Value, ...]:
    """Broadcast the arrays against each other; 0-d operands stay 0-d, lax takes them so."""
    shapes = {np.shape(value) for value in values} - {()}
    if len(shapes) < 2:
        return values
    shape = np.broadcast_shapes(*shapes)
    return tuple(
        value if np.shape(value) in ((), shape) else expand(value, shape) for value in values
    )


def expand(value: Value, shape: tuple[int, ...]) -> Value:
    """Broadcast one value to ``shape``."""
    if is_number(value):
        return lax.full(shape, value, np.asarray(value).dtype)
    if value.shape == shape:
        return value
    return jnp.broadcast_to(value, shape)


def select(condition: Value, true: Value, false: Value) -> Value:
    """``condition ? true : false``; numbers and 0-d arrays take the other branch's dtype."""
    dtype = next((v.dtype for v in (true, false) if not is_number(v)), None)
    if dtype is None:
        dtype = np.result_type(true, false)
    true, false = cast(true, str(dtype)), cast(false, str(dtype))
    shape = np.broadcast_shapes(np.shape(condition), np.shape(true), np.shape(false))
    condition = condition if np.shape(condition) == () else expand(condition, shape)
    return lax.select(condition, expand(true, shape), expand(false, shape))


def exact(ctx: RuleContext, *values: Value) -> tuple[Value, ...]:
    """Operands in ``result_type``, broadcast: for operations that round nothing."""
    return spread(*(cast(value, ctx.result_type) for value in values))


def computed(ctx: RuleContext, *values: Value) -> tuple[Value, ...]:
    """Operands in ``result_type`` with half precision widened, broadcast."""
    dtype = WIDE.get(ctx.result_type, ctx.result_type)
    return spread(*(cast(value, dtype) for value in values))


def float_dtype(ctx: RuleContext) -> str:
    """The dtype a function of reals computes in: integers become the default float."""
    dtype = ctx.result_type
    if not is_float(dtype) and not is_complex(dtype):
        dtype = ctx.out[0].dtype
        if not is_float(dtype) and not is_complex(dtype):
            dtype = "float32"
    return WIDE.get(dtype, dtype)


def floats(ctx: RuleContext, *values: Value) -> tuple[Value, ...]:
    """Operands in ``float_dtype``, broadcast."""
    dtype = float_dtype(ctx)
    return spread(*(cast(value, dtype) for value in values))


def divided(ctx: RuleContext, x: Value, y: Value) -> Value:
    """``x / y``, rounded once, as the CPU's quotient of float32 and float64 is.

    XLA takes a division by a broadcast for a product with the reciprocal, one unit in the last
    place off: ``49 / 49`` becomes 0.99999994, and 0 where it is truncated. It sees none where the
    divisor is ``x`` itself wherever that is NaN. A TPU has no quotient that is rounded once.
    """
    rounds_once = (
        str(ctx.out[0].dtype) in ("float32", "float64")
        and is_float(dtype_of(x))
        and ctx.platform.name != "tpu"
    )
    # The reciprocal of a power of two is a number, and nothing is broadcast by a number's side.
    if not rounds_once or is_number(x) or (is_number(y) and abs(np.frexp(y)[0]) == 0.5):
        return lax.div(x, y)
    x, y = spread(x, y)
    x = expand(x, np.broadcast_shapes(np.shape(x), np.shape(y)))
    return lax.div(x, select(lax.ne(x, x), x, y))


def like(value: Value, number: Value) -> Value:
    """A number, or a 0-d array, in the dtype of ``value``."""
    return cast(number, dtype_of(value))


def widened(value: Value) -> Value:
    """The value in the dtype PyTorch's CPU computes in: half precision becomes float32."""
    return cast(value, WIDE.get(dtype_of(value), dtype_of(value)))


def larger(x: Value, y: Value) -> Value:
    """The larger of two, NaN where either is; of equal ones, zeros of two signs, the first.

    So PyTorch's CPU has it, but for long rows of two tensors, where some are the second.
    """
    return lax.max(x, y) if not is_float(dtype_of(x)) else select(_prefers(lax.lt, x, y), y, x)


def smaller(x: Value, y: Value) -> Value:
    """The smaller of two, as ``larger``."""
    return lax.min(x, y) if not is_float(dtype_of(x)) else select(_prefers(lax.gt, x, y), y, x)


def _prefers(beats: Callable[[Value, Value], Value], x: Value, y: Value) -> Value:
    """Whether ``y`` is the one: where it beats ``x`` or is NaN; NaN in ``x`` stays."""
    if is_number(y):
        return np.True_ if np.isnan(y) else beats(x, y)
    return lax.bitwise_or(beats(x, y), lax.ne(y, y))


def is_negative(value: Value) -> Value:
    """The sign bit of a real array: true for -0.0 and negative NaN."""
    dtype = dtype_of(value)
    if not is_float(dtype):
        return lax.lt(value, like(value, 0))
    bits = bits_of(value)
    return lax.lt(bits, like(bits, 0))


def bits_of(value: Value) -> Value:
    """The bits of a float as a signed integer of its width.

    Those of float64 by way of an unsigned one: of a signed one libtpu 0.0.42 makes halves that no
    later operation takes.
    """
    if value.dtype.itemsize == 8:
        return cast(lax.bitcast_convert_type(value, np.uint64), "int64")
    return lax.bitcast_convert_type(value, np.dtype(f"int{value.dtype.itemsize * 8}"))
