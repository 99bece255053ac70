"""Random rules: exact Philox words, exact formulas, right distributions, and determinism.

Numbers differ from PyTorch's CPU generator by design. What is checked instead: the words
against published vectors and a NumPy Philox written apart from ours, the draws against
NumPy's arithmetic on the same words, and the moments of every distribution.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from fuse.backends.xla import philox
from fuse.backends.xla.rules import random, rejection
from fuse.backends.xla.rules.context import RuleContext
from fuse.trace.functional import base_name
from fuse.trace.operators import with_a
from fuse.trace.random_blocks import blocks, is_random
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, unreached

SEED, OFFSET = 0x0123456789ABCDEF, 2**32 - 3  # the offset's carry into the high word is met
COUNT = 20_000


# --- a NumPy Philox, one block at a time -------------------------------------


def numpy_block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox4x32-10 in Python integers (Salmon et al., SC 2011, section 3.3)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (right >> 32) ^ c1 ^ k0,
            right & 0xFFFFFFFF,
            (left >> 32) ^ c3 ^ k1,
            left & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def numpy_words(seed: int, offset: int, count: int) -> np.ndarray:
    key = (seed & 0xFFFFFFFF, seed >> 32)
    found: list[int] = []
    for number in range(-(-count // 4)):
        counter = (offset + number) % 2**64
        found += numpy_block((counter & 0xFFFFFFFF, counter >> 32, 0, 0), key)
    return np.array(found[:count], np.uint32)


def xla_words(seed: int, offset: int, count: int, function: Any = philox.words) -> np.ndarray:
    with jax.enable_x64(True):
        draw = jax.jit(function, static_argnums=2)
        return np.asarray(draw(jnp.uint64(seed), jnp.uint64(offset), count))


def test_published_vectors() -> None:
    """Known answers of the Random123 distribution (kat_vectors, philox4x32 10)."""
    ones = 0xFFFFFFFF
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert numpy_block((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert numpy_block((ones,) * 4, (ones,) * 2) == (
        *(0x408F276D, 0x41C83B0E),
        *(0xA20BC7C6, 0x6D5451FD),
    )
    assert numpy_block(pi, (0xA4093822, 0x299F31D0)) == (
        *(0xD16CFE09, 0x94FDCCEB),
        *(0x5001E420, 0x24126EA1),
    )
    assert xla_words(0, 0, 4).tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("seed", [0, 1, SEED, 2**64 - 1])
@pytest.mark.parametrize("offset", [0, 5, OFFSET, 2**64 - 2])
@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_words_equal_numpy(seed: int, offset: int, count: int) -> None:
    assert np.array_equal(xla_words(seed, offset, count), numpy_words(seed, offset, count))


def test_words64_are_pairs_of_words() -> None:
    pairs = numpy_words(SEED, OFFSET, 18).astype(np.uint64).reshape(-1, 2)
    expected = pairs[:, 0] | (pairs[:, 1] << np.uint64(32))
    assert np.array_equal(xla_words(SEED, OFFSET, 9, philox.words64), expected)


def test_any_offset_continues_the_same_stream() -> None:
    whole = xla_words(SEED, 10, 40)
    assert np.array_equal(whole[20:], xla_words(SEED, 15, 20))


# --- running a rule ----------------------------------------------------------


def draw(
    name: str,
    *args: Any,
    shape: tuple[int, ...] = (COUNT,),
    dtype: str = "float32",
    seed: int = SEED,
    offset: int = 0,
    results: int = 1,
    **kwargs: Any,
) -> Any:
    """Result of a random rule as NumPy, the promised dtype applied as the emitter does."""
    with jax.enable_x64(True):
        spec = (TensorSpec(dtype, shape),) * results

        def call(seed: jax.Array, offset: jax.Array) -> Any:
            context = RuleContext(spec, "float32", seed=seed, offset=offset)
            arrays = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
            return RULES[name](context, *arrays, **kwargs)

        result = jax.jit(call)(jnp.uint64(seed), jnp.uint64(offset))
        if results > 1:
            return tuple(np.asarray(part) for part in result)
        assert result.shape == shape
        return np.asarray(result.astype(dtype))


MEMORY = np.zeros(COUNT, np.float32)
P = np.linspace(0, 1, COUNT, dtype=np.float32)


# --- formulas ----------------------------------------------------------------


def numpy_erfinv(x: np.ndarray) -> np.ndarray:
    """Giles' single-precision approximation ("Approximating the erfinv function", 2010)."""
    w = -np.log1p(-x * x)
    central = (
        *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
        *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
    )
    tail = (
        *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
        *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
    )
    return x * np.where(w < 5, np.polyval(central, w - 2.5), np.polyval(tail, np.sqrt(w) - 3))


def test_uniform_float32_is_24_bits_of_a_word() -> None:
    words = numpy_words(SEED, 3, 101)
    expected = (words >> 8).astype(np.float32) * np.float32(2**-24)
    assert np.array_equal(draw("uniform_", None, 0.0, 1.0, shape=(101,), offset=3), expected)


def test_uniform_float64_is_53_bits_of_two_words() -> None:
    pairs = xla_words(SEED, 3, 101, philox.words64)
    expected = (pairs >> np.uint64(11)).astype(np.float64) * 2.0**-53
    found = draw("rand", (101,), shape=(101,), dtype="float64", offset=3)
    assert np.array_equal(found, expected)


def test_normal_is_inverse_error_function_of_a_word() -> None:
    top = (numpy_words(SEED, 3, 4001) >> 8).astype(np.int64)
    x = ((2 * top + 1 - 2**24) * 2.0**-24).astype(np.float32)
    expected = np.float32(math.sqrt(2)) * numpy_erfinv(x)
    found = draw("normal_", None, 0.0, 1.0, shape=(4001,), offset=3)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_integers_scale_a_word() -> None:
    words = numpy_words(SEED, 0, 50).astype(np.uint64)
    expected = ((words * np.uint64(17)) >> np.uint64(32)).astype(np.int64) - 5
    found = draw("randint.low", -5, 12, (50,), shape=(50,), dtype="int64")
    assert np.array_equal(found, expected)


def test_bernoulli_compares_24_bits() -> None:
    words = numpy_words(SEED, 0, 1000) >> 8
    found = draw("bernoulli_.float", None, 0.3, shape=(1000,), dtype="bool")
    assert np.array_equal(found, words < 0.3 * 2**24)


# --- distributions -----------------------------------------------------------

Moments = tuple[float, float]
UNIFORM: Moments = (0.5, 1 / 12)
NORMAL: Moments = (0.0, 1.0)


def of(value: float, dtype: str = "float32") -> np.ndarray:
    return np.full(COUNT, value, dtype)


CONTINUOUS: list[tuple[str, tuple[Any, ...], str, Moments]] = [
    *(("uniform_", (None, 0.0, 1.0), d, UNIFORM) for d in ("float32", "float64", "float16")),
    ("uniform_", (None, 0.0, 1.0), "bfloat16", (0.5 - 2**-9, 1 / 12)),
    ("uniform_", (None, -2.0, 4.0), "float32", (1.0, 3.0)),
    ("uniform", (MEMORY, 0.0, 1.0), "float32", UNIFORM),
    *((name, ((COUNT,),), "float32", UNIFORM) for name in ("rand", "rand.generator")),
    *((name, (MEMORY,), "float32", UNIFORM) for name in ("rand_like", "rand_like.generator")),
    *(("normal_", (None, 0.0, 1.0), d, NORMAL) for d in ("float32", "float64", "bfloat16")),
    ("normal_", (None, 3.0, 2.0), "float32", (3.0, 4.0)),
    ("normal_functional", (MEMORY, 3.0, 2.0), "float32", (3.0, 4.0)),
    *((name, ((COUNT,),), "float32", NORMAL) for name in ("randn", "randn.generator")),
    *((name, (MEMORY,), "float16", NORMAL) for name in ("randn_like", "randn_like.generator")),
    ("normal.Tensor_float", (MEMORY + 1, 2.0), "float32", (1.0, 4.0)),
    ("normal.float_Tensor", (1.0, MEMORY + 2), "float32", (1.0, 4.0)),
    ("normal.Tensor_Tensor", (MEMORY + 1, np.float32([2.0])), "float32", (1.0, 4.0)),
    ("normal.float_float", (1.0, 2.0, (COUNT,)), "float32", (1.0, 4.0)),
    ("exponential_", (None, 2.0), "float32", (0.5, 0.25)),
    ("exponential", (MEMORY, 0.5), "float64", (2.0, 4.0)),
    *((name, (MEMORY, 0.0, 0.5), "float32", (math.exp(0.125), math.exp(0.5) - math.exp(0.25)))
      for name in ("log_normal_", "log_normal")),
    *((name, (MEMORY, 0.25), "float32", (4.0, 12.0)) for name in ("geometric_", "geometric")),
    ("geometric_", (None, 0.25), "int64", (4.0, 12.0)),
    *((name, (MEMORY, 0.3), "float32", (0.3, 0.21))
      for name in ("bernoulli_.float", "bernoulli.p")),
    *((name, (MEMORY, np.float32(0.3)), "int64", (0.3, 0.21))
      for name in ("bernoulli_.Tensor", "bernoulli.Tensor")),
    ("bernoulli", (np.full(COUNT, 0.7),), "float64", (0.7, 0.21)),
    *(("_standard_gamma", (of(alpha, dtype),), dtype, (alpha, alpha))
      for alpha, dtype in ((0.3, "float64"), (1.0, "float32"), (2.5, "bfloat16"), (70.0, "float32"),
                           )),
    *(("poisson", (of(rate),), dtype, (rate, rate))
      for rate, dtype in ((0.25, "float32"), (9.5, "float64"), (10.0, "float32"),
                          (1e4, "float64"))),
    *(("binomial", (of(n), of(p, "float64")), "float32", (n * p, n * p * (1 - p)))
      for n, p in ((5, 0.5), (60, 0.1), (60, 0.4), (60, 0.98), (1e5, 3e-4))),
    *((name, (MEMORY, 12), "int64", (5.5, 143 / 12)) for name in ("random_.to", "random.to")),
    *((name, (MEMORY, -6, 6), "float32", (-0.5, 143 / 12))
      for name in ("random_.from", "random.from")),
    *((name, (MEMORY, 12), "int32", (5.5, 143 / 12))
      for name in ("randint_like", "randint_like.generator")),
    *((name, (MEMORY, np.int64(12)), "int64", (5.5, 143 / 12))
      for name in ("randint_like.Tensor", "randint_like.Tensor_generator")),
    *((name, (MEMORY, -6, 6), "int64", (-0.5, 143 / 12))
      for name in ("randint_like.low_dtype", "randint_like.low_generator_dtype")),
    *((name, (12, (COUNT,)), "int64", (5.5, 143 / 12))
      for name in ("randint", "randint.generator")),
    *((name, (-6, 6, (COUNT,)), "int64", (-0.5, 143 / 12))
      for name in ("randint.low", "randint.low_generator")),
    ("random_", (None,), "bool", (0.5, 0.25)),
    ("random_", (None,), "uint8", (127.5, (256**2 - 1) / 12)),
    ("random", (MEMORY,), "float32", (2.0**23, 2.0**48 / 12)),
    ("random_", (None,), "int64", (2.0**62, 2.0**126 / 12)),
    ("random_.from", (None, -(2**63), None), "int64", (-0.5, 2.0**128 / 12)),
    ("random_.from", (None, 0, 2**40), "int64", (2.0**39, 2.0**80 / 12)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "dtype", "moments"), CONTINUOUS)
def test_moments(name: str, args: tuple[Any, ...], dtype: str, moments: Moments) -> None:
    """Mean and variance within five standard errors (of the variance: for its kurtosis)."""
    found = draw(name, *args, dtype=dtype).astype(np.float64)
    mean, variance = moments
    assert abs(found.mean() - mean) < 5 * math.sqrt(variance / COUNT)
    fourth = ((found - found.mean()) ** 4).mean()
    error = math.sqrt(max(fourth - variance**2, variance**2 * 1e-2) / COUNT)
    assert abs(found.var() - variance) < 6 * error


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_uniform_excludes_its_upper_end(dtype: str) -> None:
    found = draw("uniform_", None, 0.0, 1.0, dtype=dtype).astype(np.float64)
    assert found.min() >= 0
    assert found.max() < 1


def test_normal_has_normal_tails() -> None:
    found = draw("normal_", None, 0.0, 1.0, shape=(400_000,))
    for bound, probability in ((1.0, 0.3173), (2.0, 0.0455), (3.0, 0.0027)):
        observed = (np.abs(found) > bound).mean()
        assert abs(observed - probability) < 5 * math.sqrt(probability / found.size)
    assert np.isfinite(found).all()


def test_neighbours_are_uncorrelated() -> None:
    found = draw("normal_", None, 0.0, 1.0)
    for lag in (1, 2, 3, 4, 8):
        assert abs((found[lag:] * found[:-lag]).mean()) < 5 / math.sqrt(COUNT)


def test_complex_normal_has_unit_variance() -> None:
    found = draw("randn", (COUNT,), dtype="complex64")
    assert abs((np.abs(found) ** 2).mean() - 1) < 0.05
    assert abs((found.real * found.imag).mean()) < 0.02
    uniform = draw("uniform_", None, 0.0, 1.0, dtype="complex64")
    assert 0 <= uniform.imag.min() < uniform.imag.max() < 1


def test_exponential_is_positive_and_finite() -> None:
    found = draw("exponential_", None, 1.0, shape=(400_000,))
    assert found.min() > 0
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", ["cauchy_", "cauchy"])
def test_cauchy_has_its_quartiles(name: str) -> None:
    quartiles = np.quantile(draw(name, MEMORY, 1.0, 2.0), (0.25, 0.5, 0.75))
    np.testing.assert_allclose(quartiles, (-1.0, 1.0, 3.0), atol=0.15)


@pytest.mark.parametrize("name", ["bernoulli_.float", "bernoulli_.Tensor"])
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_certain_events(name: str, p: float) -> None:
    value = np.float32(p) if name.endswith("Tensor") else p
    assert (draw(name, None, value if name.endswith("float") else np.full(1, p)) == p).all()


def test_bernoulli_takes_each_probability() -> None:
    found = draw("bernoulli_.Tensor", None, P)
    for part in np.split(np.arange(COUNT), 10):
        assert abs(found[part].mean() - P[part].mean()) < 0.06


def test_what_may_be_rejected_ends_at_every_parameter() -> None:
    """Without a value where there is no distribution; a gamma draw is never 0."""
    nan, inf = math.nan, math.inf
    given = np.array([0, -1, nan, inf, 1e-3, 1e6], np.float32)
    gamma = draw("_standard_gamma", given, shape=(6,))
    assert np.isnan(gamma).tolist() == [False, True, True, True, False, False]
    assert gamma[0] == np.finfo(np.float32).tiny and gamma[4] > 0 and abs(gamma[5] - 1e6) < 1e4
    poisson = draw("poisson", given, shape=(6,))
    assert np.isnan(poisson).tolist() == [False, True, True, True, False, False]
    assert poisson[0] == 0
    counts, shares = np.float32([7, 7, 7, 0, -1, nan, 7]), np.float32([0, 1, 2, 0.5, 0.5, 0.5, nan])
    binomial = draw("binomial", counts, shares, shape=(7,))
    assert binomial[:2].tolist() == [0, 7] and binomial[3] == 0
    assert np.isnan(binomial[[2, 4, 5, 6]]).all()


def test_each_element_has_blocks_of_its_own() -> None:
    """One that is rejected moves no other."""
    alphas = np.linspace(0.1, 3, COUNT, dtype=np.float32)
    some = alphas.copy()
    some[::2] = 0.05
    whole, other = draw("_standard_gamma", alphas), draw("_standard_gamma", some)
    assert np.array_equal(whole[1::2], other[1::2])
    assert np.array_equal(whole[5:9], draw("_standard_gamma", alphas[5:9], shape=(4,), offset=5))


def test_a_gammas_derivative() -> None:
    alpha, value = np.float64([0.2, 1.0, 8.0]), np.float64([0.1, 2.0, 7.0])
    found = draw("_standard_gamma_grad", alpha, value, shape=(3,), dtype="float64")
    expected = torch._standard_gamma_grad(*map(torch.from_numpy, (alpha, value)))
    np.testing.assert_allclose(found, expected, rtol=2e-4)  # PyTorch's are fits


def test_integers_stay_within_their_range() -> None:
    found = draw("randint.low", 3, 9, (COUNT,), dtype="int64")
    assert set(found.tolist()) == {3, 4, 5, 6, 7, 8}


# --- permutations and categories ---------------------------------------------


@pytest.mark.parametrize("name", ["randperm", "randperm.generator"])
def test_permutation(name: str) -> None:
    found = draw(name, 1000, shape=(1000,), dtype="int64")
    assert sorted(found.tolist()) == list(range(1000))
    assert abs(np.corrcoef(found, np.arange(1000))[0, 1]) < 0.15
    assert draw(name, 0, shape=(0,), dtype="int64").size == 0


WEIGHTS = np.float32([0.0, 1.0, 3.0, 0.0, 4.0, 0.0])


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_follows_its_weights(replacement: bool) -> None:
    rows = np.broadcast_to(WEIGHTS, (4000, 6))
    count = 3 if replacement else 1
    found = draw("multinomial", rows, count, replacement, shape=(4000, count), dtype="int64")
    frequency = np.bincount(found.ravel(), minlength=6) / found.size
    np.testing.assert_allclose(frequency, WEIGHTS / 8, atol=0.03)
    assert frequency[WEIGHTS == 0].sum() == 0


def test_multinomial_without_replacement_is_distinct() -> None:
    rows = np.broadcast_to(WEIGHTS, (500, 6))
    found = draw("multinomial", rows, 3, False, shape=(500, 3), dtype="int64")
    assert (np.sort(found, axis=1) == [1, 2, 4]).all()


def test_multinomial_of_one_row() -> None:
    found = draw("multinomial", WEIGHTS, 50, True, shape=(50,), dtype="int64")
    assert set(found.tolist()) == {1, 2, 4}


# --- dropout and randomised activations --------------------------------------


@pytest.mark.parametrize("train", [True, None])
def test_dropout(train: bool | None) -> None:
    x = np.linspace(1, 2, COUNT, dtype=np.float32)
    output, mask = draw("native_dropout", x, 0.25, train, results=2)
    assert abs(mask.mean() - 0.75) < 0.02
    np.testing.assert_allclose(output, np.where(mask, x / 0.75, 0), rtol=1e-6)


def test_dropout_corners() -> None:
    x = np.float32([1.0, math.inf])
    output, mask = draw("native_dropout", x, 0.25, False, shape=(2,), results=2)
    assert np.array_equal(output, x)
    assert mask.all()
    wanted, wanted_mask = torch.ops.aten.native_dropout(torch.from_numpy(x), 1.0, True)
    output, mask = draw("native_dropout", x, 1.0, True, shape=(2,), results=2)
    np.testing.assert_array_equal(output, wanted.numpy())
    np.testing.assert_array_equal(mask, wanted_mask.numpy())


@pytest.mark.parametrize("name", ["rrelu_with_noise", "rrelu_with_noise_functional"])
def test_rrelu(name: str) -> None:
    x = np.linspace(-1, 1, COUNT, dtype=np.float32)
    output, noise = draw(name, x, MEMORY, 0.1, 0.3, True, results=2)
    np.testing.assert_allclose(output, x * noise)
    assert (noise[x > 0] == 1).all()
    slopes = noise[x <= 0]
    assert 0.1 <= slopes.min() < slopes.max() < 0.3
    assert abs(slopes.mean() - 0.2) < 0.01
    output, noise = draw(name, x, MEMORY, 0.1, 0.3, False, results=2)
    np.testing.assert_allclose(output, np.where(x > 0, x, x * np.float32(0.2)), rtol=1e-6)
    assert not noise.any()


# --- determinism and accounting ----------------------------------------------

STREAMS: list[Callable[..., np.ndarray]] = [
    lambda **where: draw("uniform_", None, 0.0, 1.0, shape=(64,), **where),
    lambda **where: draw("normal_", None, 0.0, 1.0, shape=(64,), **where),
    lambda **where: draw("bernoulli_.float", None, 0.5, shape=(64,), **where),
    lambda **where: draw("randperm", 64, shape=(64,), dtype="int64", **where),
]


@pytest.mark.parametrize("stream", STREAMS)
def test_seed_and_offset_decide_everything(stream: Callable[..., np.ndarray]) -> None:
    first = stream(seed=1, offset=7)
    assert np.array_equal(first, stream(seed=1, offset=7))
    assert not np.array_equal(first, stream(seed=2, offset=7))
    assert not np.array_equal(first, stream(seed=1 + 2**32, offset=7))
    assert not np.array_equal(first, stream(seed=1, offset=7 + 64))


def test_parameters_may_be_arrays() -> None:
    """Numbers that have become dynamic scalars give the same draws."""
    for name, numbers in (("uniform_", (-1.0, 2.0)), ("normal_", (1.0, 2.0)),
                          ("exponential_", (0.5,)), ("bernoulli_.float", (0.3,)),
                          ("geometric_", (0.3,)), ("cauchy_", (0.0, 1.0))):  # fmt: skip
        static = draw(name, None, *numbers, shape=(32,))
        dynamic = draw(name, None, *(np.float64(n).reshape(()) for n in numbers), shape=(32,))
        arrays = draw(name, None, *(np.array(n) for n in numbers), shape=(32,))
        np.testing.assert_allclose(static, dynamic, rtol=1e-6)
        np.testing.assert_allclose(static, arrays, rtol=1e-5, atol=1e-6)


def test_blocks() -> None:
    assert blocks("uniform_", 10) == 10
    assert blocks("aten::normal.Tensor_float", 7) == 7
    assert blocks("randperm.generator", 0) == 0
    assert base_name("aten::bernoulli_.float") == "bernoulli"
    assert not is_random("aten::add.Tensor")
    with pytest.raises(KeyError, match="add"):
        blocks("add.Tensor", 3)


def test_blocks_suffice_for_the_widest_draw() -> None:
    """A complex128 element takes two 53-bit draws: four words, one block."""
    first = draw("randn", (8,), shape=(8,), dtype="complex128")
    following = draw("randn", (8,), shape=(8,), dtype="complex128", offset=blocks("randn", 8))
    assert not np.intersect1d(first.real, following.real).size
    last_block = draw("randn", (1,), shape=(1,), dtype="complex128", offset=7)
    assert np.array_equal(first[-1:], last_block)


def test_every_random_operator_has_a_rule() -> None:
    files = (random.__name__, rejection.__name__)
    registered = {n for n, function in RULES.items() if function.__module__ in files}
    assert {base_name(name) for name in registered} - {"_standard_gamma_grad"} == with_a("draws")


def test_every_rule_is_reached() -> None:
    assert unreached("random", "rejection") == set()
