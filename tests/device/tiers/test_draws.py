"""Random numbers of uncompiled calls: those that compiled ones draw, from the device's generator.

What they should be the NumPy backend says, which draws the same and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.trace.operators import with_a
from tests.device.helpers import DEVICE, made, recorder

SIZES = (5, 300, 6, 17, 3, 8, 1, 40)
MANY = 10_001
Draw = Callable[[int], torch.Tensor]


def ones(size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(size, 4, device=DEVICE, dtype=dtype)


def weights(size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(4.0 * size, device=DEVICE).reshape(size, 4) % 7 + 0.5).to(dtype)


def strided(size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Neither dense nor row-major, at an offset."""
    return torch.ones(9, size + 1, device=DEVICE, dtype=dtype)[1::2, 1:].t()


DRAWS: dict[str, Draw] = {
    "_standard_gamma": lambda n: torch._standard_gamma(weights(n) / 3),
    "_standard_gamma of doubles": lambda n: torch._standard_gamma(
        weights(n, torch.float64).t() * 9
    ),
    "_standard_gamma of halves": lambda n: torch._standard_gamma(strided(n, torch.float16)),
    "binomial": lambda n: torch.binomial(weights(n).floor() * 9, weights(n) / 7),
    "binomial of doubles": lambda n: torch.binomial(
        weights(n, torch.float64).floor() * 9, weights(n, torch.float64) / 7
    ),
    "bernoulli": lambda n: torch.bernoulli(ones(n) * 0.3),
    "bernoulli into integers": lambda n: torch.bernoulli(weights(n) / 7, out=ones(n, torch.int32)),
    "bernoulli with one probability": lambda n: torch.bernoulli(ones(n).t(), 0.3),
    "bernoulli_": lambda n: ones(n).bernoulli_(0.3),
    "bernoulli_ of truth values": lambda n: ones(n, torch.bool).bernoulli_(weights(n)[0] / 7),
    "cauchy": lambda n: ones(n).cauchy_(),
    "cauchy of a strided tensor": lambda n: strided(n, torch.float64).cauchy_(1.0, 2.0),
    "exponential": lambda n: ones(n).exponential_(2.0),
    "exponential of doubles": lambda n: ones(n, torch.float64).exponential_(2.0),
    "exponential of halves": lambda n: strided(n, torch.float16).exponential_(),
    "geometric": lambda n: ones(n).geometric_(0.2),
    "geometric of integers": lambda n: ones(n, torch.int16).geometric_(0.2),
    "log_normal": lambda n: ones(n).log_normal_(),
    "log_normal of bfloat16": lambda n: strided(n, torch.bfloat16).log_normal_(0.5, 0.5),
    "multinomial": lambda n: torch.multinomial(weights(n), 2),
    "multinomial into another": lambda n: torch.multinomial(
        weights(n), 3, out=ones(n, torch.int64)[:, :3]
    ),
    "multinomial of one": lambda n: torch.multinomial(weights(n, torch.float16), 1),
    "multinomial with replacement": lambda n: torch.multinomial(weights(n), 6, replacement=True),
    "native_dropout": lambda n: F.dropout(weights(n), 0.4),
    "native_dropout of a transposed tensor": lambda n: F.dropout(weights(n).t(), 0.4),
    "native_dropout of bfloat16": lambda n: F.dropout(weights(n).bfloat16(), 0.4),
    "normal": lambda n: torch.normal(weights(n), 2 * ones(n)),
    "normal by one operand": lambda n: torch.normal(1.0, weights(n, torch.bfloat16).t()),
    "normal into another": lambda n: torch.normal(weights(n), 0.5, out=strided(n)),
    "normal of complex numbers": lambda n: ones(n, torch.complex64).normal_(1.0, 2.0),
    "normal of operands that are expanded": lambda n: torch.normal(weights(n)[0], weights(n)),
    "normal of numbers": lambda n: torch.normal(1.0, 2.0, (n, 4), device=DEVICE),
    "normal_functional": lambda n: torch.ops.aten.normal_functional(ones(n), 1.0, 2.0),
    "poisson": lambda n: torch.poisson(weights(n) * 3),
    "poisson of doubles": lambda n: torch.poisson(weights(n, torch.float64).t() ** 4),
    "poisson of halves": lambda n: torch.poisson(strided(n, torch.bfloat16)),
    "rand": lambda n: torch.rand(n, 4, device=DEVICE),
    "rand into another": lambda n: torch.rand(4, n, out=strided(n).t()),
    "rand of bfloat16": lambda n: torch.rand(n, 4, device=DEVICE, dtype=torch.bfloat16),
    "rand of complex numbers": lambda n: torch.rand(n, 4, device=DEVICE, dtype=torch.complex128),
    "rand of doubles": lambda n: torch.rand(n, 4, device=DEVICE, dtype=torch.float64),
    "rand_like": lambda n: torch.rand_like(ones(n).t()),
    "rand_like in a format": lambda n: torch.rand_like(
        ones(n).t(),
        memory_format=torch.contiguous_format,
        generator=torch.Generator(DEVICE).manual_seed(n),
    ),
    "randint": lambda n: torch.randint(3, 90, (n, 4), device=DEVICE),
    "randint of halves": lambda n: torch.randint(90, (n, 4), device=DEVICE, dtype=torch.float16),
    "randint_like": lambda n: torch.randint_like(ones(n), 90),
    "randint_like by a tensor": lambda n: torch.randint_like(ones(n), torch.tensor(90)),
    "randint_like of a low bound": lambda n: torch.randint_like(ones(n), -9, 9, dtype=torch.int8),
    "randn": lambda n: torch.randn(n, 4, device=DEVICE),
    "randn_like": lambda n: torch.randn_like(ones(n)),
    "randn_like of doubles": lambda n: torch.randn_like(strided(n, torch.float64)),
    "random": lambda n: ones(n, torch.int32).random_(),
    "random of all integers": lambda n: ones(n, torch.int64).random_(-(2**63), None),
    "random of bytes": lambda n: strided(n, torch.uint8).random_(),
    "random of doubles": lambda n: ones(n, torch.float64).random_(-5, None),
    "random of more than one word": lambda n: ones(n, torch.int64).random_(-5, 2**40),
    "random up to": lambda n: ones(n, torch.bfloat16).random_(100),
    "randperm": lambda n: torch.randperm(n, device=DEVICE),
    "randperm of int32": lambda n: torch.randperm(n, device=DEVICE, dtype=torch.int32),
    "rrelu_with_noise": lambda n: F.rrelu(weights(n) - 3, training=True),
    "rrelu_with_noise in place": lambda n: F.rrelu_(weights(n).t() - 3, training=True),
    "rrelu_with_noise of means": lambda n: F.rrelu((weights(n) - 3).t()),
    "rrelu_with_noise_functional": lambda n: torch.ops.aten.rrelu_with_noise_functional(
        weights(n) - 3, ones(n), 0.1, 0.3, True
    )[1],
    "uniform": lambda n: ones(n)[1:].uniform_(-1, 2),
    "uniform of complex numbers": lambda n: strided(n, torch.complex64).uniform_(-1, 2),
    "uniform of halves": lambda n: ones(n, torch.float16).uniform_(-1, 2),
}


def lain(tensor: torch.Tensor) -> list[int]:
    """Strides where they say something."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for extent, stride in pairs if extent > 1]


Drawn = tuple[torch.Tensor, torch.Tensor]
"""The numbers, and the generator's state after them."""


def drawn(draw: Draw, sizes: tuple[int, ...]) -> list[Drawn]:
    found = []
    for size in sizes:
        torch.manual_seed(size)
        result = draw(size) * 1
        found.append((result.cpu(), torch.tpu.get_rng_state()))
    return found


def uncompiled(draw: Draw, sizes: tuple[int, ...]) -> list[Drawn]:
    with recorder(tier="uncompiled"):
        before = fuse.stats()["uncompiled_operations"]
        found = drawn(draw, sizes)
        assert fuse.stats()["uncompiled_operations"] > before
    return found


def by_numpy(draw: Draw, sizes: tuple[int, ...]) -> list[Drawn]:
    with fuse.FusedEager(backend="numpy"):
        return drawn(draw, sizes)


def assert_same(found: list[Drawn], expected: list[Drawn]) -> None:
    for (values, moved), (wanted, wanted_move) in zip(found, expected, strict=True):
        # A gamma's draw below one is a power, which enlarges a rounding.
        rough = {"rtol": 1e-5, "atol": 1e-5} if values.dtype == torch.float32 else {}
        torch.testing.assert_close(values, wanted, **rough)
        assert lain(values) == lain(wanted)
        assert torch.equal(moved, wanted_move)


def test_every_random_operator_is_drawn_here():
    assert {name.partition(" ")[0].removesuffix("_") for name in DRAWS} == with_a("draws")


@pytest.mark.filterwarnings("ignore:.*runs on the host")
@pytest.mark.parametrize("name", DRAWS)
def test_the_numbers_are_those_of_a_compiled_call(name: str):
    expected = by_numpy(DRAWS[name], SIZES)
    for _ in range(2):
        assert_same(uncompiled(DRAWS[name], SIZES), expected)


@pytest.mark.filterwarnings("ignore:.*runs on the host")
@pytest.mark.parametrize("name", [name for name in DRAWS if "multinomial" not in name])
def test_so_are_many_numbers(name: str):
    assert_same(uncompiled(DRAWS[name], (MANY,)), by_numpy(DRAWS[name], (MANY,)))


def test_a_long_permutation():
    """Among so many keys some ten pairs share their high half: the low one tells them apart."""
    sizes = (0, 1, 2, 300_000)
    draw = DRAWS["randperm"]
    assert_same(uncompiled(draw, sizes), by_numpy(draw, sizes))


def test_uncompiled_draws_make_no_executable():
    with recorder(tier="uncompiled"):
        before, calls = made(), fuse.stats()["uncompiled_operations"]
        for draw in DRAWS.values():
            for size in SIZES:
                draw(size).cpu()
        assert fuse.stats()["uncompiled_operations"] > calls
        assert made() == before


def test_the_cpus_generator_is_not_moved():
    with recorder(tier="uncompiled"):
        before, calls = torch.get_rng_state(), fuse.stats()["uncompiled_operations"]
        for draw in DRAWS.values():
            for size in SIZES:
                draw(size).cpu()
        assert fuse.stats()["uncompiled_operations"] > calls
        assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_of_ones_own_is_the_one_that_is_moved():
    found = []
    for tier in ("compiled", "uncompiled"):
        generator = torch.Generator(DEVICE)
        generator.manual_seed(7)
        with recorder(tier=tier):
            state = torch.tpu.get_rng_state()
            for size in (3, 4, 5, 6, 7):
                found.append(torch.rand(size, device=DEVICE, generator=generator).cpu())
                found.append(
                    torch.randperm(
                        size, device=DEVICE, generator=generator, dtype=torch.int32
                    ).cpu()
                )
            assert torch.equal(torch.tpu.get_rng_state(), state)
    for one, other in zip(found[:10], found[10:], strict=True):
        torch.testing.assert_close(one, other)


REFUSED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bernoulli": lambda x: torch.bernoulli(x * 2),
    "bernoulli_": lambda x: x.bernoulli_(1.5),
    "bernoulli_ of another shape": lambda x: x.bernoulli_(torch.stack([x, x]) / 2),
    "cauchy": lambda x: x.cauchy_(0, 0),
    "exponential": lambda x: x.exponential_(0),
    "exponential of integers": lambda x: x.long().exponential_(),
    "geometric": lambda x: x.geometric_(1),
    "log_normal": lambda x: x.log_normal_(0, 0),
    "normal": lambda x: x.normal_(0, -1),
    "normal by a tensor": lambda x: torch.normal(x, -x),
    "normal by another shape": lambda x: torch.normal(x, x[:2]),
    "of one place": lambda x: x[:1].expand(3).normal_(),
    "randint": lambda x: torch.randint_like(x, 5, 3),
    "randint by a tensor": lambda x: torch.randint_like(x, torch.tensor(-3)),
    "random": lambda x: x.byte().random_(0, 300),
    "randperm": lambda x: torch.randperm(300, dtype=torch.uint8, device=x.device),
    "rrelu": lambda x: F.rrelu(x, 0.5, 0.1, training=True),
    "uniform": lambda x: x.uniform_(2, 1),
    "uniform of halves": lambda x: x.half().uniform_(0, 1e5),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_is_pytorchs_and_draws_nothing(name: str):
    with pytest.raises(RuntimeError) as expected:
        REFUSED[name](torch.ones(3))
    with recorder(tier="uncompiled"):
        x = torch.ones(3, device=DEVICE)
        with pytest.raises(RuntimeError) as found:
            REFUSED[name](x).cpu()
        assert x.tolist() == [1, 1, 1]
    assert str(found.value).partition("\n")[0] == str(expected.value).partition("\n")[0]


def test_weights_that_the_cpu_refuses_are_refused():
    with recorder(tier="uncompiled"):
        for size in range(1, 9):
            torch.multinomial(weights(size), 1).cpu()
        with pytest.raises(RuntimeError, match="cannot sample n_sample > prob_dist"):
            torch.multinomial(weights(9), 9).cpu()
        with pytest.raises(RuntimeError, match="probability tensor contains either"):
            torch.multinomial(-weights(10), 1).cpu()
        many = torch.ones(1, 2**24 + 1).to(DEVICE) * weights(11)[:1, :1]
        before = fuse.stats()["uncompiled_operations"]
        with pytest.raises(RuntimeError, match="number of categories cannot exceed"):
            torch.multinomial(many, 1).cpu()
        assert fuse.stats()["uncompiled_operations"] == before + 1
