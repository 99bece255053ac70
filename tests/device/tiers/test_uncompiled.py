"""Segments that run uncompiled: PyTorch's own kernels on the device's memory, with the results, the
random numbers and the errors of compiled ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.device import lazy
from tests.device.helpers import DEVICE, Counted, host_only, mode, recorder
from tests.device.tiers.stuck import stuck_compiler
from tests.device.tiers.test_background import attention, bags, network, numbers, views
from tests.lanes import not_on_accelerators
from tests.programs.harness import compare_with_cpu

pytestmark = not_on_accelerators("no call runs uncompiled there")

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def uncompiled_tier() -> Iterator[None]:
    with recorder(tier="uncompiled"):
        yield


def chain(x: torch.Tensor, length: int = 5) -> float:
    for _ in range(length):
        x = (x @ x).tanh()
    return x.sum().item()


def counted(step: Callable[[], object]) -> Counted:
    with Counted() as found:
        step()
    return found


@pytest.mark.parametrize("program", [views, numbers, network, attention, bags])
def test_programs_give_the_cpus_results(program: Any) -> None:
    with Counted() as found:
        compare_with_cpu(program)
    assert found.uncompiled > 0 and found.recorded == 0


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

    with Counted() as found:
        first = draw()
    assert found.uncompiled > 0
    with recorder(tier="compiled"):
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


def test_memory_is_whose_it_was() -> None:
    """Values that host kernels made are read as they are, and never written by a reader."""

    def step(device: torch.device, length: int) -> list[list[float]]:
        x = torch.ones(length, device=device) * 3
        same, part = x * 1, x[1:]
        x.add_(part.sum())
        part.mul_(2)
        same.resize_(2).zero_()
        return [t.tolist() for t in (x, part, same, x.t(), torch.cat([x, same]))]

    for length in range(2, 14):
        assert step(DEVICE, length) == step(CPU, length)


def test_what_has_grown_is_read_uncompiled_and_compiled() -> None:
    """Its memory is padded for the reader; the value keeps its own."""
    for grown in (torch.ones(2).to(DEVICE), torch.ones(2, device=DEVICE) * 1):
        grown.resize_(4)  # on this device what is new is zeros
        assert (grown * 2).tolist() == [2, 2, 0, 0]
        with recorder(tier="compiled"):
            assert (grown * 2).tolist() == [2, 2, 0, 0]
        lazy.core().set_tier(2)
        assert (grown + 1).tolist() == [2, 2, 1, 1]


def test_segments_of_both_tiers_share_their_values() -> None:
    def rounds(device: torch.device, tiers: list[int]) -> list[float]:
        state, found = torch.zeros(6, device=device), []
        part = state[2:5]
        for step in range(9):
            lazy.core().set_tier(tiers[step % len(tiers)])
            part += step
            state[step % 6] = 7.0
            state = state * 1.5 if step == 4 else state
            found.append((state.sum() + part.sum()).item())
        return found

    for tiers in ([1, 2], [2, 1], [2, 2, 1, 1, 1]):
        assert rounds(DEVICE, tiers) == rounds(CPU, tiers)
    lazy.core().set_tier(2)


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
    """An operator of somebody else's ends the segment; its fallback is counted as ever."""
    x = torch.ones(3, device=DEVICE) + 1
    with pytest.warns(UserWarning, match="fuse_tests::host_only"):
        y = host_only(x)
    assert (y * 2).tolist() == [10.0] * 3


@pytest.mark.parametrize("name", ["debug", "strict"])
def test_only_fused_eager_runs_uncompiled(name: str) -> None:
    with mode(name):
        x = torch.ones(3, device=DEVICE)
        assert counted(lambda: chain(x.outer(x))).uncompiled == 0


def test_another_backend_computes_everything_itself() -> None:
    fuse.set_backend("numpy")
    try:
        x = torch.ones(3, device=DEVICE)
        assert counted(lambda: chain(x.outer(x))).uncompiled == 0
    finally:
        fuse.set_backend("xla")


def test_a_compiled_graph_is_recorded_at_once() -> None:
    step = torch.compile(lambda x: (x * 2).tanh().sum(), backend="tpu")
    x = torch.ones(5, device=DEVICE)
    with Counted() as found:
        assert step(x).item() == pytest.approx(4.82, abs=0.01)
    assert found.recorded > 0


def test_explain_shows_what_would_run_uncompiled() -> None:
    x = torch.ones(3, 3, device=DEVICE)
    assert fuse.explain(chain, x).to_dict()["traces"]


def test_while_executables_are_made_the_stream_runs_uncompiled() -> None:
    core = lazy.core()
    x = torch.full((4, 4), 0.1).to(DEVICE)
    expected = pytest.approx(chain(torch.full((4, 4), 0.1, device="cpu")), rel=1e-5)
    with stuck_compiler() as compiler:
        core.set_tier(0)
        end = time.monotonic() + 60
        while not compiler.counts.uncompiled_chunks:
            assert chain(x) == expected and time.monotonic() < end
        for _ in range(10):
            with Counted() as found:
                assert chain(x) == expected
            assert found.recorded == 0 and found.uncompiled == 11
        assert compiler.counts.uncompiled_chunks == 1
        assert not core.is_settled()


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


def test_integers_are_counted_as_recorded_calls_count_them() -> None:
    def counts() -> list[torch.Tensor]:
        found = []
        for dtype in (torch.uint8, torch.int32, torch.int64):
            x = torch.tensor([5, 1, 1, 9, 3, 7], dtype=dtype, device=DEVICE) + 0
            found += [x.histc(*limits) for limits in ((3,), (4, 1, 8), (3, 2, 2), (2, 9, 9))]
            found += [x[:0].histc(2)] if dtype != torch.uint8 else []
            found.append(torch.full((3,), 4, dtype=dtype, device=DEVICE).histc(3))
        return [one.cpu() for one in found]

    with Counted() as seen:
        first = counts()
    assert seen.recorded == 0
    with recorder(tier="compiled"):
        for one, other in zip(first, counts(), strict=True):
            assert one.dtype == other.dtype and torch.equal(one, other)
        with pytest.raises(RuntimeError, match="bins must be > 0"):
            torch.ones(3, dtype=torch.int64, device=DEVICE).histc(0)


def test_memory_just_made_is_zeros_where_a_call_writes_a_part_of_it() -> None:
    x = torch.empty(3, 4, device=DEVICE)
    x[1].fill_(2)
    x.t()[0].copy_(torch.ones(3, device=DEVICE))
    assert x.tolist() == [[1, 0, 0, 0], [1, 2, 2, 2], [1, 0, 0, 0]]


def test_what_the_device_records_can_run_on_the_host() -> None:
    """So that no operator fails in a segment that runs uncompiled."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = ("ImplicitAutograd", "ExplicitAutograd", "ExplicitAutogradNonFunctional")
    keys = ("CPU", *(f"Composite{kind}" for kind in composite))
    missing = [
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and lazy.engine().backend.has_rule(name.removeprefix("aten::"))
        and not any(has_kernel(name, key) for key in keys)
    ]
    assert missing == []
