"""Sums, extrema, truth values, variances, norms and scans against PyTorch's CPU kernels."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, check, run, to_array, to_tensor, unreached

NAN, INF = float("nan"), float("inf")
FLOAT = [torch.float32, torch.bfloat16]
ALL = [*FLOAT, torch.int64, torch.uint8, torch.bool]
DIMS = [[], [-1], [0, 2]]


def sample(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Small values with ties, zeros and both signs (where the dtype has them)."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=generator)
    low = 0 if dtype in (torch.uint8, torch.bool) else -3
    whole = torch.randint(low, 4, shape, generator=generator)
    if dtype.is_floating_point:
        return (whole + 0.25 * torch.randint(0, 2, shape, generator=generator)).to(dtype)
    return (whole > 1) if dtype == torch.bool else whole.to(dtype)


@pytest.mark.parametrize("dtype", [*ALL, torch.complex64])
def test_sums(dtype: torch.dtype) -> None:
    x = sample(3, 4, 5, dtype=dtype)
    check("sum", x)
    check("sum.dim_IntList", x, None, True)
    for dim in DIMS:
        check("sum.dim_IntList", x, dim)
    check("sum.dim_IntList", x, [1], True, dtype=torch.float64 if not dtype.is_complex else None)
    check("count_nonzero", x)
    check("count_nonzero.dim_IntList", x, [0, 2])
    check("prod", x[0, :2])
    check("prod.dim_int", x[:, :, :3], -1, True)
    if dtype == torch.bool:
        for truth in (x, x | True, x[:, :0]):
            check("prod", truth, dtype=torch.bool)
            check("prod.dim_int", truth, 1, dtype=torch.bool)


@pytest.mark.parametrize("dtype", [*ALL, torch.float64, torch.int8])
def test_hashes(dtype: torch.dtype) -> None:
    x = sample(3, 4, 5, dtype=dtype)
    check("hash_tensor", x)
    check("hash_tensor", x, [1], keepdim=True)
    check("hash_tensor", x, [0, 2])
    check("hash_tensor", x[:, :0], [0])
    check("hash_tensor", torch.tensor([0.0, -0.0, INF, 1e-300, -2.5]))


def test_sums_that_convert() -> None:
    check("sum", sample(6, dtype=torch.int64), dtype=torch.bfloat16)
    check("sum", torch.full((300,), 1, dtype=torch.uint8), dtype=torch.uint8)  # wraps
    check("sum", torch.full((9,), 100, dtype=torch.int8))
    check("prod", sample(6, dtype=torch.int32), dtype=torch.float32)
    check("mean", sample(6, dtype=torch.int64), dtype=torch.float32)
    check("sum", torch.full((4096,), 1.0, dtype=torch.bfloat16))  # stalls at 256 if not widened


@pytest.mark.parametrize("dtype", [*FLOAT, torch.complex64])
def test_means(dtype: torch.dtype) -> None:
    x = sample(3, 4, 5, dtype=dtype)
    check("mean", x)
    for dim in DIMS:
        check("mean.dim", x, dim, True)


def test_reductions_of_nothing_and_of_scalars() -> None:
    for x in (torch.empty(0), torch.empty(0, 3), torch.empty(3, 0)):
        for name in ("sum", "prod", "mean", "any", "all", "count_nonzero"):
            check(name, x)
        check("var.correction", x)
    check("sum.dim_IntList", torch.empty(0, 3), [0])
    check("mean.dim", torch.empty(0, 3), [0])
    check("amax", torch.empty(0, 3), [1])
    scalar = torch.tensor(2.5)
    check("sum.dim_IntList", scalar, [0], True)
    check("prod.dim_int", scalar, -1)
    check("amax", scalar, [0])
    check("max.dim", scalar, 0)
    check("argmin", scalar, 0)
    check("any.dim", scalar, -1)
    check("var_mean.correction", scalar, [0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_nansum(dtype: torch.dtype) -> None:
    x = sample(3, 4, dtype=dtype)
    if dtype.is_floating_point:
        x[0, 1] = x[2] = NAN
    check("nansum", x)
    check("nansum", x, [1], True)


@pytest.mark.parametrize("dtype", [*ALL, torch.complex64])
def test_truth(dtype: torch.dtype) -> None:
    x = sample(3, 4, 5, dtype=dtype)
    for name in ("any", "all"):
        check(name, x)
        check(f"{name}.dim", x, 1)
        check(f"{name}.dim", x, -1, True)
        for dim in ([], [0], [0, 2]):
            check(f"{name}.dims", x, dim, bool(dim))
        check(f"{name}.dims", x, None)
    check("any", torch.tensor([0.0, NAN]))
    check("all", torch.tensor([-0.0, 1.0]))


def test_truth_of_every_and_any() -> None:
    x = torch.tensor([True, False])
    for row in (x, x[:1], x[1:], x[:0]):
        check("_is_all_true", row)
        check("_is_any_true", row)


@pytest.mark.parametrize("dtype", ALL)
def test_extrema(dtype: torch.dtype) -> None:
    x = sample(4, 5, 6, dtype=dtype)
    for name in ("max", "min"):
        check(name, x)
        for dim in (0, -1):
            check(f"{name}.dim", x, dim)  # ties: the first index
        check(f"{name}.dim", x, 1, True)
        for dims in DIMS:
            check(f"a{name}", x, dims, True)
        if dtype != torch.bool:
            check(f"arg{name}", x)
            check(f"arg{name}", x, 1)
            check(f"arg{name}", x, -1, True)
    check("aminmax", x)
    check("aminmax", x, dim=1, keepdim=True)
    if dtype not in (torch.bfloat16, torch.float16):
        check("_aminmax", x)
        check("_aminmax.dim", x, 0)


def test_nan_wins_every_extremum_at_its_first_place() -> None:
    x = torch.tensor([[1.0, NAN, 3.0, NAN], [INF, 2.0, -INF, 0.0], [-INF] * 4, [NAN] * 4])
    for name in ("max", "min"):
        check(f"{name}.dim", x, 1)
        check(f"arg{name}", x, 1)
        check(f"arg{name}", x)
        check(f"a{name}", x, [0])
        check(name, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("correction", [None, 0, 2.5])
def test_variance(dtype: torch.dtype, correction: Any) -> None:
    x = sample(3, 4, 5, dtype=dtype)
    for name in ("var", "std", "var_mean", "std_mean"):
        check(f"{name}.correction", x, None, correction=correction)
        check(f"{name}.correction", x, [0, 2], correction=correction, keepdim=True)


def test_variance_corners() -> None:
    for correction in (0, 1, 3, 4):  # from n on the divisor is 0, never negative
        check("var.correction", torch.tensor([1.0, 2.0, 4.0]), [0], correction=correction)
    check("std.correction", torch.tensor([7.0]), [0], correction=1)
    check("var.correction", torch.tensor([1.0, INF]), [0], correction=1)
    check("var.correction", sample(100) + 1e4)  # the one-pass form has no digit left here


ORDERS = [0, 1, 2, 3, 0.5, -1, INF, -INF]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_norms(order: float, dtype: torch.dtype) -> None:
    x = sample(3, 4, dtype=dtype) + 0.125
    check("linalg_vector_norm", x, order)
    check("linalg_vector_norm", x, order, [1], True)
    check("norm.ScalarOpt_dim", x, order, [0])
    check("norm.Scalar", x, order)
    check("linalg_vector_norm", torch.tensor([1.0, NAN, 2.0]), order)


def test_norms_that_convert_and_norms_of_nothing() -> None:
    x = sample(3, 4)
    wide = {"dtype": torch.float64}
    check("linalg_vector_norm", x, 2, [0], **wide)
    check("norm.ScalarOpt_dtype", x, None, **wide)
    check("norm.ScalarOpt_dim_dtype", x, 3, [1], True, **wide)
    check("norm.ScalarOpt_dim", x, None, [1])
    for order in (0, 1, 2, 3):
        check("linalg_vector_norm", torch.empty(0, 2), order, [0])
        check("dist", x, sample(3, 4, seed=1), order)
    check("dist", x, sample(4, seed=1), INF)


@pytest.mark.parametrize("p", [1, 2, 3, INF])
def test_renorm(p: float) -> None:
    check("renorm", sample(3, 4, 2), p, 1, 2.5)
    check("renorm", sample(3, 4, 2, dtype=torch.bfloat16), p, -1, 4.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_logsumexp(dtype: torch.dtype) -> None:
    check("logsumexp", sample(3, 4, dtype=dtype), [1])
    check("logsumexp", sample(3, 4, dtype=dtype), [0, 1], True)


def test_logsumexp_corners() -> None:
    rows = torch.tensor([[INF, 1.0], [-INF, -INF], [NAN, 1.0], [1e4, 1e4], [INF, -INF]])
    check("logsumexp", rows, [1])
    check("logsumexp", torch.empty(2, 0), [1])
    check("logsumexp", torch.tensor(2.0), [0])


def test_complex_log_sums() -> None:
    x = torch.tensor([[1 + 2j, -0.5 + 0.25j, 3 - 1.5j], [-2 - 0.125j, 0.5j, 1 + 0j]])
    for values in (x, x.to(torch.complex128), 40 * x):
        check("logsumexp", values, [1])
        check("logsumexp", values, [0, 1], True)
    for values in (x, x.to(torch.complex128)):
        check("logcumsumexp", values, 1)
        check("_logcumsumexp", values, 0)


@pytest.mark.parametrize("name", ["sum", "mean", "var.correction"])
def test_long_float32_reductions_keep_their_digits(name: str) -> None:
    """10^6 elements within 1e-6 of float64, relative to the sum of their magnitudes."""
    generator = torch.Generator().manual_seed(0)
    for rows in (
        torch.rand(10**6, generator=generator),
        torch.rand(10**6, 1, generator=generator) + 100,
    ):
        results, _ = run(name, rows)
        exact = getattr(torch, name.partition(".")[0])(rows.double())
        # Against 100 the deviations themselves are rounded to 1e-5 of their size.
        bound = 1e-5 if name.startswith("var") and rows.ndim == 2 else 1e-6
        assert abs(results[0].item() / exact.item() - 1) < bound


# --- scans ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*ALL, torch.complex64])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_cumulative(name: str, dtype: torch.dtype) -> None:
    x = sample(3, 5, 2, dtype=dtype)
    for dim in (0, -1):
        check(name, x, dim)
    check(name, x, 1, dtype=torch.complex128 if dtype.is_complex else torch.float64)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
def test_cumulative_corners(name: str) -> None:
    check(name, torch.tensor(3.0), 0)
    check(name, torch.tensor(3.0), -1)
    check(name, torch.empty(2, 0), 1)
    check(name, torch.empty(0, 2), 1)
    check(name, torch.tensor([1.0, INF, 2.0, NAN, 3.0]), 0)
    check(name, torch.tensor([-INF, -INF, 1.0, -INF]), 0)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_cumulative_extrema_move_to_the_last_tie(name: str, dtype: torch.dtype) -> None:
    x = sample(3, 7, 2, dtype=dtype)
    for dim in (0, -1):
        check(name, x, dim)
    check(name, torch.tensor([2.0, 2.0, NAN, 1.0, NAN, 3.0]), 0)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_cumulative_helpers_return_what_they_would_write(name: str) -> None:
    x = sample(3, 4)
    values, indices = torch.empty(3, 4), torch.empty(3, 4, dtype=torch.int64)
    getattr(torch.ops.aten, f"_{name}_helper")(x, values, indices, 1)
    spec = (TensorSpec("float32", (3, 4)), TensorSpec("int64", (3, 4)))
    with jax.enable_x64(True):
        arrays = (to_array(x), to_array(torch.zeros(3, 4)), to_array(torch.zeros(3, 4).long()))
        results = RULES[f"_{name}_helper"](RuleContext(spec, "float32"), *arrays, 1)
    for result, want in zip(results, (values, indices), strict=True):
        assert torch.equal(to_tensor(result), want)


@pytest.mark.parametrize("dtype", FLOAT)
def test_logcumsumexp(dtype: torch.dtype) -> None:
    x = sample(3, 6, dtype=dtype) * 3
    check("logcumsumexp", x, 1)
    check("_logcumsumexp", x, 0)


@pytest.mark.parametrize(
    ("name", "arguments", "keyword", "dynamic"),
    [
        (
            "var.correction",
            (sample(3, 4), None),
            {"correction": 1.0, "keepdim": False},
            "correction",
        ),
        ("renorm", (sample(3, 4), 2, 0, 1.5), {}, 3),
        ("smooth_l1_loss", (sample(6), sample(6, seed=1), 1, 0.7), {}, 3),
        ("huber_loss", (sample(6), sample(6, seed=1), 1, 0.7), {}, 3),
        ("native_layer_norm", (sample(3, 4), (4,), None, None, 1e-3), {}, 4),
        ("multi_margin_loss", (sample(2, 3), torch.tensor([0, 2]), 1, 0.7, None, 1), {}, 3),
        ("histc", (sample(9), 3, -1.0, 2.0), {}, 3),
        ("isin.Tensor_Scalar", (sample(9), 2.0), {"assume_unique": False, "invert": False}, 1),
    ],
)
def test_scalars_may_be_dynamic(
    name: str, arguments: tuple[Any, ...], keyword: dict[str, Any], dynamic: int | str
) -> None:
    """A 0-d float64 array in the place of a number gives the same bits and the same dtypes."""
    _, flat = run(name, *arguments, **keyword)
    spec = tuple(TensorSpec(str(t.dtype)[6:], tuple(t.shape)) for t in flat)
    with jax.enable_x64(True):
        positional = [to_array(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        context = RuleContext(spec, "float32")
        constant = RULES[name](context, *positional, **keyword)
        place: Any = keyword if isinstance(dynamic, str) else positional
        place[dynamic] = jax.numpy.asarray(place[dynamic], "float64")
        changed = RULES[name](context, *positional, **keyword)
        for one, other in zip(jax.tree.leaves(constant), jax.tree.leaves(changed), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(to_tensor(one), to_tensor(other))


def test_every_rule_is_reached() -> None:
    assert unreached("reduction", "scan") == set()
