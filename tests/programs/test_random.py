"""Random numbers: reproducible, and the same in every mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import fuse
from fuse.device import lazy
from tests.conftest import MODES
from tests.programs.harness import DEVICE, compare_with_cpu, on_host

DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "rand": lambda: torch.rand(5, 3, device=DEVICE),
    "randn": lambda: torch.randn(7, device=DEVICE),
    "randint": lambda: torch.randint(3, 100, (9,), device=DEVICE),
    "randperm": lambda: torch.randperm(11, device=DEVICE),
    "bernoulli": lambda: torch.bernoulli(torch.full((20,), 0.3, device=DEVICE)),
    "multinomial": lambda: torch.multinomial(torch.ones(6, device=DEVICE), 4),
    "normal_": lambda: torch.empty(4, device=DEVICE).normal_(2.0, 0.1),
    "uniform_": lambda: torch.empty(4, 2, device=DEVICE).t().uniform_(-1, 1),
    "exponential_": lambda: torch.empty(4, device=DEVICE).exponential_(),
    "gamma": lambda: torch._standard_gamma(torch.full((4,), 0.7, device=DEVICE)),
    "poisson": lambda: torch.poisson(torch.tensor([0.5, 4.0, 90.0], device=DEVICE)),
    "binomial": lambda: torch.distributions.Binomial(
        90, torch.tensor([0.02, 0.7], device=DEVICE)
    ).sample(),
    "dirichlet": lambda: torch._sample_dirichlet(torch.ones(2, 3, device=DEVICE)),
    "rand_like": lambda: torch.rand_like(torch.empty(3, device=DEVICE, dtype=torch.float64)),
    "dropout": lambda: nn.functional.dropout(torch.ones(30, device=DEVICE), 0.4),
    "init": lambda: nn.init.kaiming_normal_(torch.empty(4, 4, device=DEVICE)),
    "trunc_normal": lambda: nn.init.trunc_normal_(torch.empty(4, 4, device=DEVICE)),
}


@pytest.mark.filterwarnings("ignore:compilation cache. an entry was not written")
@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_gives_the_same_numbers_in_every_mode(name: str):
    found = []
    for mode in (*MODES, "fused"):
        fuse.set_mode(mode)
        for _ in range(2):
            torch.manual_seed(7)
            found.append(on_host([DRAWS[name](), DRAWS[name]()]))
    fuse.set_mode("fused")
    first, second = found[0]
    assert not torch.equal(first, second)
    for again, after in found[1:]:
        assert_same(first, again)
        assert_same(second, after)


def assert_same(one: torch.Tensor, other: torch.Tensor) -> None:
    """To the last bit, but for what the two tiers round differently."""
    rounding = 0.0 if lazy.engine().tier == "compiled" else 2e-6
    torch.testing.assert_close(one, other, rtol=rounding, atol=rounding)


def train_with_dropout() -> list[float]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1)).to(DEVICE)
    x = torch.randn(10, 6).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_with_dropout_is_the_same_in_every_mode():
    found = {}
    for mode in MODES:
        fuse.set_mode(mode)
        found[mode] = train_with_dropout()
        assert train_with_dropout() == found[mode]
    torch.testing.assert_close(found["strict"], found["debug"], rtol=0, atol=0)
    torch.testing.assert_close(found["fused"], found["debug"], rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("mode")
def test_the_state_is_saved_and_restored():
    torch.manual_seed(5)
    torch.rand(3, device=DEVICE)
    state = torch.tpu.get_rng_state()
    first = torch.rand(4, device=DEVICE).cpu()
    torch.tpu.set_rng_state(state)
    assert torch.equal(torch.rand(4, device=DEVICE).cpu(), first)
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.manual_seed(99)
        torch.rand(2, device=DEVICE)
    after = torch.rand(1, device=DEVICE).cpu()
    torch.tpu.set_rng_state(state)
    torch.rand(4, device=DEVICE)
    assert torch.equal(torch.rand(1, device=DEVICE).cpu(), after)


@pytest.mark.usefixtures("mode")
def test_a_generator_of_ones_own():
    own = torch.Generator("tpu").manual_seed(11)
    assert own.device == torch.device("tpu", 0) and own.initial_seed() == 11
    torch.manual_seed(11)
    default_state = torch.tpu.get_rng_state()
    drawn = torch.rand(4, device=DEVICE, generator=own).cpu()
    assert torch.equal(torch.tpu.get_rng_state(), default_state)
    assert torch.equal(torch.rand(4, device=DEVICE).cpu(), drawn)
    state = own.get_state()
    first = torch.randn(3, device=DEVICE, generator=own).cpu()
    copy = torch.Generator("tpu")
    copy.set_state(state)
    assert torch.equal(torch.randn(3, device=DEVICE, generator=copy).cpu(), first)
    clone = own.clone_state()
    assert torch.equal(
        torch.rand(2, device=DEVICE, generator=own).cpu(),
        torch.rand(2, device=DEVICE, generator=clone).cpu(),
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda own: torch.rand(2, device=DEVICE, generator=own),
        lambda own: torch.randperm(20, device=DEVICE, generator=own),
        lambda own: torch.randint(9, (5,), device=DEVICE, generator=own),
        lambda own: torch.empty(3, device=DEVICE).normal_(generator=own),
        lambda own: torch.bernoulli(torch.ones(3, device=DEVICE), generator=own),
        lambda own: torch.multinomial(torch.ones(3, device=DEVICE), 2, generator=own),
        lambda own: torch.normal(torch.ones(3, device=DEVICE), 1.0, generator=own),
    ],
)
def test_a_host_generator_is_refused(draw: Callable[[torch.Generator], torch.Tensor]) -> None:
    """At the first call, and once the call is known: the sampler of a data loader draws so."""
    for _ in range(7):
        with pytest.raises(RuntimeError, match="Expected a 'tpu' device type for generator"):
            draw(torch.Generator())
        draw(torch.Generator(DEVICE)).sum().item()


@pytest.mark.usefixtures("mode")
def test_distributions_have_the_right_moments():
    torch.manual_seed(1)
    normal = torch.randn(4000, device=DEVICE)
    uniform = torch.rand(4000, device=DEVICE)
    kept = nn.functional.dropout(torch.ones(4000, device=DEVICE), 0.25)
    assert abs(normal.mean().item()) < 0.06 and abs(normal.std().item() - 1) < 0.04
    assert abs(uniform.mean().item() - 0.5) < 0.02 and 0 <= uniform.min().item() < 0.01
    assert abs((kept == 0).float().mean().item() - 0.25) < 0.03
    assert abs(kept.max().item() - 4 / 3) < 1e-6


@pytest.mark.usefixtures("mode")
def test_evaluation_draws_nothing():
    model = nn.Dropout(0.5).eval()
    before = torch.tpu.get_rng_state()
    compare_with_cpu(lambda device: model(torch.ones(4, device=device)))
    torch.manual_seed(0)
    before = torch.tpu.get_rng_state()
    model(torch.ones(4, device=DEVICE)).cpu()
    assert torch.equal(torch.tpu.get_rng_state(), before)


def test_distributions_of_torch():
    """Their samples are finite, in their support, and reproducible."""
    for make in (
        lambda: torch.distributions.Normal(torch.zeros(3, device=DEVICE), 1.0),
        lambda: torch.distributions.Categorical(torch.ones(4, device=DEVICE)),
        lambda: torch.distributions.Uniform(torch.zeros(2, device=DEVICE), 1.0),
    ):
        torch.manual_seed(2)
        distribution = make()
        first = distribution.sample((5,))
        torch.manual_seed(2)
        assert torch.equal(first.cpu(), make().sample((5,)).cpu())
        assert torch.isfinite(distribution.log_prob(first)).all().item()
