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
from tests.device.helpers import DEVICE, recorder

SIZES = (5, 300, 6, 17, 3, 8, 1, 40)
Draw = Callable[[int], torch.Tensor]


def ones(size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(size, 4, device=DEVICE, dtype=dtype)


def weights(size: int) -> torch.Tensor:
    return torch.arange(4.0 * size, device=DEVICE).reshape(size, 4) % 7 + 0.5


DRAWS: dict[str, Draw] = {
    "bernoulli": lambda n: torch.bernoulli(ones(n) * 0.3),
    "bernoulli_": lambda n: ones(n).bernoulli_(0.3),
    "cauchy": lambda n: ones(n).cauchy_(),
    "exponential": lambda n: ones(n).exponential_(2.0),
    "exponential of doubles": lambda n: ones(n, torch.float64).exponential_(2.0),
    "geometric": lambda n: ones(n).geometric_(0.2),
    "log_normal": lambda n: ones(n).log_normal_(),
    "multinomial": lambda n: torch.multinomial(weights(n), 2),
    "multinomial with replacement": lambda n: torch.multinomial(weights(n), 6, replacement=True),
    "native_dropout": lambda n: F.dropout(weights(n), 0.4),
    "native_dropout of a transposed tensor": lambda n: F.dropout(weights(n).t(), 0.4),
    "native_dropout of bfloat16": lambda n: F.dropout(weights(n).bfloat16(), 0.4),
    "normal": lambda n: torch.normal(weights(n), 2 * ones(n)),
    "normal of numbers": lambda n: torch.normal(1.0, 2.0, (n, 4), device=DEVICE),
    "normal_functional": lambda n: torch.ops.aten.normal_functional(ones(n), 1.0, 2.0),
    "rand": lambda n: torch.rand(n, 4, device=DEVICE),
    "rand_like": lambda n: torch.rand_like(ones(n).t()),
    "randint": lambda n: torch.randint(3, 90, (n, 4), device=DEVICE),
    "randint_like": lambda n: torch.randint_like(ones(n), 90),
    "randn": lambda n: torch.randn(n, 4, device=DEVICE),
    "randn_like": lambda n: torch.randn_like(ones(n)),
    "random": lambda n: ones(n, torch.int32).random_(),
    "randperm": lambda n: torch.randperm(n, device=DEVICE),
    "randperm of int32": lambda n: torch.randperm(n, device=DEVICE, dtype=torch.int32),
    "rrelu_with_noise": lambda n: F.rrelu(weights(n) - 3, training=True),
    "uniform": lambda n: ones(n)[1:].uniform_(-1, 2),
}


def lain(tensor: torch.Tensor) -> list[int]:
    """Strides where they say something."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for extent, stride in pairs if extent > 1]


def drawn(draw: Draw, generator: Callable[[], object]) -> list[tuple[torch.Tensor, object]]:
    found = []
    for size in SIZES:
        torch.manual_seed(size)
        result = draw(size) * 1
        found.append((result.cpu(), generator()))
    return found


def test_every_random_operator_is_drawn_here():
    assert {name.partition(" ")[0].removesuffix("_") for name in DRAWS} == {
        *(with_a("draws") - {"rrelu_with_noise_functional"})
    }


@pytest.mark.parametrize("name", DRAWS)
def test_the_numbers_are_those_of_a_compiled_call(name: str):
    state = torch.tpu.get_rng_state
    with recorder(tier="uncompiled"):
        before = fuse.stats()["uncompiled_operations"]
        found = [drawn(DRAWS[name], state) for _ in range(2)]
        assert fuse.stats()["uncompiled_operations"] > before
    fuse.set_backend("numpy")
    try:
        expected = drawn(DRAWS[name], state)
    finally:
        fuse.set_backend("xla")
    for once in found:
        for (values, moved), (wanted, wanted_move) in zip(once, expected, strict=True):
            torch.testing.assert_close(values, wanted)
            assert lain(values) == lain(wanted)
            assert torch.equal(moved, wanted_move)


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


def test_ever_new_sizes_make_few_executables():
    with recorder(tier="uncompiled"):
        for size in range(1, 9):
            F.dropout(torch.ones(size, 4, device=DEVICE), 0.5).sum().item()
        before = fuse.stats()["cache"]["memory"]["misses"]
        for size in range(9, 60):  # of up to 256 elements, one line
            F.dropout(torch.ones(size, 4, device=DEVICE), 0.5).sum().item()
        assert fuse.stats()["cache"]["memory"]["misses"] - before <= 2


def test_what_the_cpu_refuses_is_refused():
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
