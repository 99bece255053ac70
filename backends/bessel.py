"""Bessel and Airy functions after Cephes, over any array module with NumPy's names.

Each function takes the module (``numpy`` or ``jax.numpy``) and a floating-point array, and
returns an array of its shape and dtype. Outside the domain of a function the result is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fuse.backends import cephes

_TWO_OVER_PI = 2 / math.pi
_ROOT = math.sqrt(2 / math.pi)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's rule, the highest power first."""
    result = x * 0 + x.dtype.type(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + x.dtype.type(coefficient)
    return result


def _chebyshev(x: Any, coefficients: Sequence[float]) -> Any:
    """Clenshaw's recurrence for half the sum of a Chebyshev series, as Cephes' ``chbevl``."""
    before = last = x * 0
    current = last + x.dtype.type(coefficients[0])
    for coefficient in coefficients[1:]:
        before, last = last, current
        current = x * last - before + x.dtype.type(coefficient)
    return (current - before) / 2


def _asymptotic(xp: Any, x: Any, tables: Sequence[Sequence[float]], phase: float) -> Any:
    """Modulus and phase parts of Hankel's expansion for large ``x``: of J, and of Y."""
    top, bottom, second_top, second_bottom = tables
    w = x.dtype.type(5) / x
    z = w * w
    p = _polynomial(z, top) / _polynomial(z, bottom)
    q = w * _polynomial(z, second_top) / _polynomial(z, second_bottom)
    angle = x - x.dtype.type(phase)
    scale = x.dtype.type(_ROOT) / xp.sqrt(x)
    sine, cosine = xp.sin(angle), xp.cos(angle)
    return (p * cosine - q * sine) * scale, (p * sine + q * cosine) * scale


_LARGE_0 = (cephes.J0_PP, cephes.J0_PQ, cephes.J0_QP, cephes.J0_QQ)
_LARGE_1 = (cephes.J1_PP, cephes.J1_PQ, cephes.J1_QP, cephes.J1_QQ)


def j0(xp: Any, x: Any) -> Any:
    """Bessel function of the first kind of order 0."""
    x = xp.abs(x)
    small = xp.where(x <= 5, x, 0 * x)
    z = small * small
    near = (z - x.dtype.type(5.78318596294678452118)) * (z - x.dtype.type(30.4712623436620863991))
    near = near * _polynomial(z, cephes.J0_RP) / _polynomial(z, cephes.J0_RQ)
    near = xp.where(small < 1e-5, 1 - z / 4, near)
    far, _ = _asymptotic(xp, xp.where(x <= 5, 0 * x + 5, x), _LARGE_0, math.pi / 4)
    return xp.where(x <= 5, near, far)


def j1(xp: Any, x: Any) -> Any:
    """Bessel function of the first kind of order 1."""
    size = xp.abs(x)
    small = xp.where(size <= 5, size, 0 * size)
    z = small * small
    near = _polynomial(z, cephes.J1_RP) / _polynomial(z, cephes.J1_RQ) * small
    near = near * (z - x.dtype.type(14.6819706421238932572))
    near = near * (z - x.dtype.type(49.2184563216946036703))
    far, _ = _asymptotic(xp, xp.where(size <= 5, 0 * size + 5, size), _LARGE_1, 3 * math.pi / 4)
    result = xp.where(size <= 5, near, far)
    return xp.where(x < 0, -result, result)


def y0(xp: Any, x: Any) -> Any:
    """Bessel function of the second kind of order 0: minus infinity at 0."""
    small = xp.where((x > 0) & (x <= 5), x, 0 * x + 1)
    z = small * small
    near = _polynomial(z, cephes.Y0_YP) / _polynomial(z, cephes.Y0_YQ)
    near = near + x.dtype.type(_TWO_OVER_PI) * xp.log(small) * j0(xp, small)
    _, far = _asymptotic(xp, xp.where(x > 5, x, 0 * x + 5), _LARGE_0, math.pi / 4)
    return _second_kind(xp, x, xp.where(x <= 5, near, far), -math.inf)


def y1(xp: Any, x: Any) -> Any:
    """Bessel function of the second kind of order 1: minus infinity at 0."""
    small = xp.where((x > 0) & (x <= 5), x, 0 * x + 1)
    z = small * small
    near = small * _polynomial(z, cephes.Y1_YP) / _polynomial(z, cephes.Y1_YQ)
    rest = j1(xp, small) * xp.log(small) - 1 / small
    near = near + x.dtype.type(_TWO_OVER_PI) * rest
    _, far = _asymptotic(xp, xp.where(x > 5, x, 0 * x + 5), _LARGE_1, 3 * math.pi / 4)
    return _second_kind(xp, x, xp.where(x <= 5, near, far), -math.inf)


def _second_kind(xp: Any, x: Any, result: Any, pole: float) -> Any:
    """``pole`` at 0 and NaN below it (and of NaN)."""
    result = xp.where(x == 0, x.dtype.type(pole), result)
    return xp.where((x < 0) | (x != x), x.dtype.type(math.nan), result)


def k0(xp: Any, x: Any, i0: Any, *, scaled: bool) -> Any:
    """Modified Bessel function of the second kind of order 0, perhaps times ``exp(x)``.

    ``i0`` computes the modified function of the first kind.
    """
    small = xp.where((x > 0) & (x <= 2), x, 0 * x + 1)
    near = _chebyshev(small * small - 2, cephes.K0_A) - xp.log(small / 2) * i0(small)
    return _modified(xp, x, small, near, cephes.K0_B, scaled)


def k1(xp: Any, x: Any, i1: Any, *, scaled: bool) -> Any:
    """Modified Bessel function of the second kind of order 1, perhaps times ``exp(x)``.

    ``i1`` computes the modified function of the first kind.
    """
    small = xp.where((x > 0) & (x <= 2), x, 0 * x + 1)
    near = xp.log(small / 2) * i1(small) + _chebyshev(small * small - 2, cephes.K1_A) / small
    return _modified(xp, x, small, near, cephes.K1_B, scaled)


def _modified(
    xp: Any, x: Any, small: Any, near: Any, far_table: Sequence[float], scaled: bool
) -> Any:
    large = xp.where(x > 2, x, 0 * x + 2)
    far = _chebyshev(8 / large - 2, far_table) / xp.sqrt(large)
    if scaled:
        near = near * xp.exp(small)
    else:
        far = far * xp.exp(-large)
    return _second_kind(xp, x, xp.where(x <= 2, near, far), math.inf)


def _series(steps: int, first: int) -> list[float]:
    """Coefficients of Airy's power series in ``x**3``, the highest first (DLMF 9.4.1)."""
    found = [1.0]
    for step in range(steps):
        below = 3 * step + first
        found.append(found[-1] / ((below + 1) * (below + 2)))
    return found[::-1]


_AIRY_F = _series(22, 1)
_AIRY_G = _series(22, 2)
_AI_0 = 0.355028053887817239260
_AI_SLOPE = 0.258819403792806798405
_HALF_ROOT_PI = 5.64189583547756286948e-01  # 1 / sqrt(pi)


def airy_ai(xp: Any, x: Any) -> Any:
    """Airy function Ai; NaN at both infinities, as PyTorch has it."""
    middle = xp.where((x >= -2.09) & (x < 2.09), x, 0 * x)
    cube = middle * middle * middle
    near = x.dtype.type(_AI_0) * _polynomial(cube, _AIRY_F)
    near = near - x.dtype.type(_AI_SLOPE) * middle * _polynomial(cube, _AIRY_G)
    result = xp.where(x < -2.09, _airy_negative(xp, xp.where(x < -2.09, x, 0 * x - 3)), near)
    result = xp.where(x >= 2.09, _airy_positive(xp, xp.where(x >= 2.09, x, 0 * x + 3)), result)
    result = xp.where(x > 103.892, 0 * result, result)
    return xp.where(xp.isfinite(x), result, x.dtype.type(math.nan))


def _airy_positive(xp: Any, x: Any) -> Any:
    root = xp.sqrt(x)
    zeta = 2 * x * root / 3
    ratio = _polynomial(1 / zeta, cephes.AIRY_AN) / _polynomial(1 / zeta, cephes.AIRY_AD)
    return x.dtype.type(_HALF_ROOT_PI) * ratio / (2 * xp.sqrt(root) * xp.exp(zeta))


def _airy_negative(xp: Any, x: Any) -> Any:
    root = xp.sqrt(-x)
    zeta = -2 * x * root / 3
    z = 1 / zeta
    square = z * z
    even = 1 + square * _polynomial(square, cephes.AIRY_AFN) / _polynomial(square, cephes.AIRY_AFD)
    odd = z * _polynomial(square, cephes.AIRY_AGN) / _polynomial(square, cephes.AIRY_AGD)
    angle = zeta + x.dtype.type(math.pi / 4)
    wave = xp.sin(angle) * even - xp.cos(angle) * odd
    return x.dtype.type(_HALF_ROOT_PI) / xp.sqrt(root) * wave


def functions(i0: Any, i1: Any) -> dict[str, Callable[..., Any]]:
    """Each operator's function of (module, array), by name.

    ``i0`` and ``i1`` compute the modified functions of the first kind.
    """
    return {
        "special_airy_ai": airy_ai,
        "special_bessel_j0": j0,
        "special_bessel_j1": j1,
        "special_bessel_y0": y0,
        "special_bessel_y1": y1,
        "special_modified_bessel_k0": partial(k0, i0=i0, scaled=False),
        "special_modified_bessel_k1": partial(k1, i1=i1, scaled=False),
        "special_scaled_modified_bessel_k0": partial(k0, i0=i0, scaled=True),
        "special_scaled_modified_bessel_k1": partial(k1, i1=i1, scaled=True),
    }
