"""First sights: a stream that has not come by often runs uncompiled, with the same results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.device import lazy
from fuse.engine.compiler import Compiler
from tests.device.helpers import DEVICE, Block, Counted, host_only, mode, recorder, run
from tests.device.test_background import Stuck, attention, bags, network, numbers, views
from tests.programs.harness import compare_with_cpu

NEEDED = 2
PATIENCE = 16
"""Times as often that a stream of small tensors has to come by."""


@pytest.fixture(autouse=True)
def sights() -> Iterator[None]:
    with recorder():
        lazy.core().set_sightings(NEEDED)
        yield
        lazy.core().set_sightings(0)


def chain(x: torch.Tensor, length: int = 5) -> float:
    for _ in range(length):
        x = (x @ x).tanh()
    return x.sum().item()


def counted(step: Callable[[], object]) -> Counted:
    with Counted() as found:
        step()
    return found


@pytest.mark.parametrize("program", [views, numbers, network, attention, bags])
def test_the_first_run_gives_the_cpus_results(program: Any) -> None:
    with Counted() as found:
        compare_with_cpu(program)
    assert found.uncompiled > 0 and found.recorded == 0


def test_a_stream_is_recorded_once_it_has_come_by_often() -> None:
    x = torch.full((4, 4), 0.1, device="cpu")
    on_device, expected = x.to(DEVICE), chain(x)
    for _ in range(PATIENCE * NEEDED):
        with Counted() as found:
            assert chain(on_device) == pytest.approx(expected)
        assert found.recorded == 0 and found.uncompiled == 11
    for _ in range(3):
        with Counted() as found:
            assert chain(on_device) == pytest.approx(expected)
        assert found.recorded == 11 and found.uncompiled == 0


def test_a_stream_of_large_tensors_is_recorded_sooner() -> None:
    x = torch.ones(2_000_000, device="cpu").to(DEVICE)
    runs = [counted(lambda: (x * 2 + 1).sum().item()).recorded for _ in range(NEEDED + 1)]
    assert runs == [0] * NEEDED + [3]


def test_a_sequence_that_grows_is_never_recorded() -> None:
    x = torch.ones(1, 4, device=DEVICE)

    def write() -> None:
        y = x
        for _ in range(30):
            y = torch.cat([y, x * 2])
            assert y.sum().item() == 8 * len(y) - 4

    assert counted(lambda: [write() for _ in range(3)]).recorded == 0


def test_an_endless_loop_is_recorded_and_compiles_little() -> None:
    with recorder(limit=100):
        x, y = torch.zeros(3, device=DEVICE), torch.zeros(3, device="cpu")
        with Counted() as found:
            for _ in range(700):
                x, y = (x + 1) * 0.5, (y + 1) * 0.5
        assert found.uncompiled == 100 and found.recorded == 1300
        torch.testing.assert_close(x.cpu(), y)


def test_streams_that_take_turns_are_recorded() -> None:
    inputs = [torch.ones(n, n, device="cpu").div(n) for n in (2, 3, 4)]
    pairs = [(x.to(DEVICE), chain(x)) for x in inputs]
    with Counted() as found:
        for _ in range(PATIENCE * NEEDED + 3):
            for x, expected in pairs:
                assert chain(x) == pytest.approx(expected, rel=1e-5)
    assert found.recorded > 0


def test_training_that_is_recorded_at_last_goes_on_as_on_the_cpu() -> None:
    lazy.core().set_sightings(1)

    def train(device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, x = Block().to(device), torch.randn(2, 5, 8).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(PATIENCE + 8):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach().cpu())
        return [*losses, *(p.detach().cpu() for p in model.parameters())]

    with Counted() as found:
        on_device = train(DEVICE)
    assert found.recorded > 0 and found.uncompiled > 0
    for one, other in zip(on_device, train(torch.device("cpu")), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "normal": lambda x: torch.randn(3, 5, device=x.device) + x.mean(),
    "integers": lambda x: torch.randint(9, (7,), device=x.device) + 1,
    "permutation": lambda x: torch.randperm(11, device=x.device) * 2,
    "samples": lambda x: torch.multinomial(x.abs() + 0.1, 2),
    "in place": lambda x: x.clone().bernoulli_(0.3),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.2),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_recorded_calls(name: str) -> None:
    def draw() -> list[torch.Tensor]:
        torch.manual_seed(3)
        x = torch.linspace(-1, 1, 300).reshape(20, 15).to(DEVICE)
        found = [RANDOM[name](x).cpu() for _ in range(3)]
        return [*found, torch.rand(2, device=DEVICE).cpu()]  # the generator has come as far

    with Counted() as sighted:
        first = draw()
    lazy.core().set_sightings(0)
    assert sighted.uncompiled > 0
    for one, other in zip(first, draw(), strict=True):
        torch.testing.assert_close(one, other)


def test_writes_views_and_graphs() -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        state = torch.zeros(3, 4, device=device)
        row, x = state[1], torch.ones(4, device=device, requires_grad=True)
        for step in range(4):
            row += step
            state.t()[step % 4] = 7.0
            ((state.detach() * x).sum() * (step + 1)).backward()
            state.mul_(0.5)
        return [state, row, x.grad]

    with Counted() as found:
        compare_with_cpu(program)
    assert found.uncompiled > 0


def test_errors_are_pytorchs_and_what_follows_is_right() -> None:
    x = torch.ones(3, device=DEVICE)
    y = x + 1
    with pytest.raises(RuntimeError, match="The size of tensor a"):
        torch.add(y, torch.ones(4, device=DEVICE))
    with pytest.raises(IndexError, match="out of range"):
        y.select(0, 5)
    assert (y + 1).tolist() == [3.0] * 3


def test_too_much_memory_is_refused_in_the_devices_words() -> None:
    x = torch.ones(1 << 20, device=DEVICE)
    with pytest.raises(torch.OutOfMemoryError, match="tried to allocate 4.00 TiB"):
        x[:, None] * x
    assert x.sum().item() == 1 << 20


def test_what_only_the_device_computes_is_recorded() -> None:
    """An operator of somebody else's ends the sight; its fallback is counted as ever."""
    x = torch.ones(3, device=DEVICE) + 1
    with pytest.warns(UserWarning, match="fuse_tests::host_only"):
        y = host_only(x)
    assert (y * 2).tolist() == [10.0] * 3


@pytest.mark.parametrize("name", ["debug", "strict"])
def test_only_fused_eager_has_first_sights(name: str) -> None:
    with mode(name):
        x = torch.ones(3, device=DEVICE)
        assert counted(lambda: chain(x.outer(x))).uncompiled == 0


def test_a_compiled_graph_is_recorded_at_once() -> None:
    step = torch.compile(lambda x: (x * 2).tanh().sum(), backend="tpu")
    x = torch.ones(5, device=DEVICE)
    with Counted() as found:
        assert step(x).item() == pytest.approx(4.82, abs=0.01)
    assert found.recorded > 0


def test_explain_shows_a_stream_at_its_first_sight() -> None:
    x = torch.ones(3, 3, device=DEVICE)
    assert fuse.explain(chain, x).to_dict()["traces"]


def test_while_executables_are_made_the_stream_runs_uncompiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, core = lazy.engine(), lazy.core()
    compiler = Compiler(engine.executables, background=True)
    compiler._pool = Stuck()  # type: ignore[assignment]
    engine.executables.cache.clear_memory()
    monkeypatch.setattr(engine.planning, "compiler", compiler)
    core.set_sightings(1)
    x = torch.full((4, 4), 0.1).to(DEVICE)
    expected = chain(torch.full((4, 4), 0.1, device="cpu"))
    for _ in range(PATIENCE):
        chain(x)
    assert counted(lambda: chain(x)).recorded == 11
    for _ in range(3):
        with Counted() as found:
            assert chain(x) == pytest.approx(expected, rel=1e-5)
        assert found.recorded == 0 and found.uncompiled == 11
    assert compiler.counts.uncompiled_chunks == 1
    core.forget()


SETTING = """
import torch, fuse
from fuse.device import lazy
x = torch.ones(3, device="tpu")
(x + 1).sum().item()
print(lazy.engine().sightings, fuse.stats()["operations"])
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"FUSE_COMPILE": "background"}, "4 0"),
        ({"FUSE_COMPILE": "background", "FUSE_SIGHTINGS": "0"}, "0 3"),
        ({"FUSE_COMPILE": "wait"}, "0 3"),
        ({"FUSE_COMPILE": "background", "FUSE_CACHE_RECORD": os.devnull}, "0 3"),
        ({"FUSE_COMPILE": "background", "FUSE_HOST_FALLBACK": "error"}, "0 3"),
        ({"FUSE_COMPILE": "background", "FUSE_BACKEND": "numpy"}, "0 3"),
    ],
)
def test_the_setting(settings: dict[str, str], expected: str) -> None:
    assert run(SETTING, **settings).strip() == expected


def test_dtypes_that_only_the_device_computes() -> None:
    """PyTorch's kernel on the CPU adds no numbers of eight bits: that call alone is recorded."""
    x = torch.tensor([1.0, 2.0, 3.0], device=DEVICE)
    for _ in range(3):
        with Counted() as found:
            few = (x + 1).to(torch.float8_e4m3fn)
            assert (few + few).float().tolist() == [4, 6, 8]
        assert found.recorded == 1 and found.uncompiled >= 4, "the refused attempts count, too"


def test_forward_gradients_that_begin_as_zeros_without_memory() -> None:
    def program(device: torch.device) -> torch.Tensor:
        x = torch.linspace(0.1, 1.0, 3).to(device)
        return torch.func.hessian(lambda x: (x.exp() * x.flip(0)).sum())(x)

    compare_with_cpu(program)


def mixture(device: torch.device) -> list[torch.Tensor]:
    """What transformers' experts and caches call that PyTorch's CPU kernels refuse or write."""
    chosen = torch.tensor([[3, 1], [0, 3], [2, 2]], dtype=torch.int32, device=device) + 0
    counts = torch.histc(chosen if device.type == "tpu" else chosen.float(), bins=4, min=0, max=3)
    x = torch.linspace(-1, 1, 96, device=device).reshape(2, 4, 3, 4)
    seen = torch.ones(3, 3, dtype=torch.bool, device=device).tril()
    keys = x[:, :2]
    attended = [
        F.scaled_dot_product_attention(x, x, x, attn_mask=seen),
        F.scaled_dot_product_attention(x, x, x, attn_mask=seen.float(), scale=0.3),
        F.scaled_dot_product_attention(x, keys, keys, is_causal=True, enable_gqa=True),
        F.scaled_dot_product_attention(x.double(), x.double(), x.double()),
    ]
    normed = F.layer_norm(x, (4,), x[0, 0, 0], None)
    copies = [x.transpose(1, 2).contiguous(), x.mT.clone(), x.half()]
    copies[0] += 1  # a copy is the caller's own
    return [counts.int(), *attended, normed, *copies, x]


@pytest.mark.parametrize("name", ["first sights", "recorded"])
def test_what_models_write_with(name: str) -> None:
    lazy.core().set_sightings(1 << 20 if name == "first sights" else 0)
    expected = mixture(torch.device("cpu"))
    for _ in range(6):
        with Counted() as found, torch.no_grad():
            on_device = [one.cpu() for one in mixture(DEVICE)]
        for one, other in zip(on_device, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert (found.recorded == 0) == (name == "first sights")


def test_integers_are_counted_as_recorded_calls_count_them() -> None:
    def counts() -> list[torch.Tensor]:
        found = []
        for dtype in (torch.uint8, torch.int32, torch.int64):
            x = torch.tensor([5, 1, 1, 9, 3, 7], dtype=dtype, device=DEVICE) + 0
            found += [x.histc(*limits) for limits in ((3,), (4, 1, 8), (3, 2, 2), (2, 9, 9))]
            found += [x[:0].histc(2)] if dtype != torch.uint8 else []
            found.append(torch.full((3,), 4, dtype=dtype, device=DEVICE).histc(3))
        return [one.cpu() for one in found]

    with Counted() as sighted:
        first = counts()
    assert sighted.recorded == 0
    lazy.core().set_sightings(0)
    for one, other in zip(first, counts(), strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        torch.ones(3, dtype=torch.int64, device=DEVICE).histc(0)


def test_memory_just_made_is_zeros_where_a_call_writes_a_part_of_it() -> None:
    x = torch.empty(3, 4, device=DEVICE)
    x[1].fill_(2)
    x.t()[0].copy_(torch.ones(3, device=DEVICE))
    assert x.tolist() == [[1, 0, 0, 0], [1, 2, 2, 2], [1, 0, 0, 0]]
