"""Sizes that change: symbols, buckets, what is proven, and how many executables it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from tests.compile.harness import Compile, compare_with_cpu
from tests.lanes import only_in

LENGTHS = (5, 6, 9, 63, 64, 65, 66, 70, 7)


def lengths_of(function: Callable[[torch.Tensor], Any], shape: tuple[Any, ...]) -> None:
    """Each length gives the CPU's results, with one graph for all."""

    def program(device: torch.device, compile: Compile) -> Any:
        run = compile(function)
        results = []
        with torch.no_grad():
            for length in LENGTHS:
                sizes = [length if size is None else size for size in shape]
                results.append(run(torch.randn(sizes).to(device)))
        return results

    compare_with_cpu(program, runs=1)


PROVEN: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x: (x * 2).relu() + x.exp(), (None, 3)),
    "row by row": (lambda x: torch.layer_norm(x, (4,)) @ torch.ones_like(x[:4]), (None, 4)),
    "softmax": (lambda x: x.softmax(1) + x.log_softmax(-1), (2, None)),
    "sums of what padding is not neutral to": (lambda x: (x + 1).sum(0), (None, 3)),
    "sum of all": (lambda x: x.exp().sum(), (None,)),
    "infinite padding": (lambda x: (1 / x).sum(0) + (1 / x).amax(0), (None, 3)),
    "extremes": (lambda x: (x.amax(-1), x.neg().exp().amin(-1)), (2, None)),
    "contracted": (lambda x: (x + 1).t() @ (x * 3), (None, 4)),
    "growing by one": (lambda x: torch.cat([x, x[:1] * 0 + 7, x[:1]], 0).cumsum(0), (None, 3)),
    "positions": (lambda x: x + torch.arange(x.shape[0], device=x.device)[:, None], (None, 3)),
    "split beside": (lambda x: torch.cat([one.exp() for one in x.split(2, 1)], 1), (None, 3)),
    "unbound beside": (lambda x: sum(one.exp() for one in x.unbind(1)), (None, 3)),
    "the place of the largest beside": (lambda x: x.argmax(1) + 1, (None, 3)),
    "its own length": (lambda x: x[:2] * torch.arange(x.shape[0], x.shape[0] + 2,
                                                      device=x.device)[:, None], (None, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVEN)
def test_what_is_proven_runs_in_buckets(name: str):
    function, shape = PROVEN[name]
    fuse.reset_stats()
    lengths_of(function, shape)
    assert fuse.stats()["compiled"]["one_size_each"] == {}
    # The first size, which was not known to change, and two buckets.
    assert fuse.stats()["compiled"]["captures"] == 3


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[Any, ...], str]] = {
    "the mean": (lambda x: x.mean(0), (None, 3), "aten::mean"),
    "from the end": (lambda x: x[-1] * 2, (None, 3), "aten::select"),
    "flipped": (lambda x: x.flip(0), (None, 3), "aten::flip"),
    "flattened": (lambda x: x.reshape(-1) + 1, (2, None), "aten::"),
    "random": (lambda x: x + torch.rand_like(x), (None,), "aten::rand_like"),
    "the number itself": (lambda x: x * x.shape[0], (None,), "computes with the symbol"),
    "half of it": (lambda x: x * (x.shape[0] / 2), (None,), "computes with the symbol"),
    "whether it is even": (
        lambda x: x + (x.shape[0] % 2 == 0),
        (None,),
        "computes with the symbol",
    ),
    "the place of the largest": (lambda x: x.argmax(0) + 1, (None, 3), "aten::argmax"),
    "sorted": (lambda x: x.sort(0).values, (None, 3), "aten::sort"),
}


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "random"])
def test_what_is_not_proven_is_right_too_and_says_why(name: str):
    function, shape, reason = REFUSED[name]
    fuse.reset_stats()
    lengths_of(function, shape)
    (found,) = fuse.stats()["compiled"]["one_size_each"]
    assert reason in found


def test_a_graph_of_a_number_alone_knows_the_number():
    torch._dynamo.reset()
    made = torch.compile(lambda n: torch.full((2,), n % 3 == 0, device="tpu"), dynamic=True)
    for number in (9, 10, 63, 64, 66):
        assert made(number).cpu().tolist() == [number % 3 == 0] * 2


# Also from the end, and with steps.
STARTS, ENDS, STEPS = (None, 2, -2), (None, 3, -1), (1, 2)


@pytest.mark.parametrize("dim", (0, 1))
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("start", STARTS)
def test_slices_of_a_size_that_changes(start: Any, end: Any, step: int, dim: int):
    def function(x: torch.Tensor) -> Any:
        part = (x + 1)[(slice(None),) * dim + (slice(start, end, step),)]
        return part * 2, part.sum(dim)

    fuse.reset_stats()
    lengths_of(function, (None, 3) if dim == 0 else (2, None))
    proven = fuse.stats()["compiled"]["one_size_each"] == {}
    assert proven == (step == 1 and start != -2)


def few(x: torch.Tensor) -> torch.Tensor:
    return x[:2] * 0 + 7


JOINED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "before": lambda x: torch.cat([few(x), x]),
    "between": lambda x: torch.cat([few(x), x, few(x)]),
    "behind itself": lambda x: torch.cat([x, x]),
    "behind, twice": lambda x: torch.cat([torch.cat([x, few(x)]), few(x) + 1]),
    "before what was joined": lambda x: torch.cat([few(x), torch.cat([x, few(x)])]),
    "a part of what was joined": lambda x: torch.cat([torch.cat([x, few(x)])[1:], few(x) + 1]),
    "thrice": lambda x: torch.cat([torch.cat([torch.cat([x, few(x)]), few(x) + 1]), x[:1]]),
    "several behind several": lambda x: torch.cat([torch.cat([x, few(x), x[:1]]), x[1:2], few(x)]),
}


@pytest.mark.parametrize("name", JOINED)
def test_joins_of_a_size_that_changes(name: str):
    def function(x: torch.Tensor) -> Any:
        joined = JOINED[name](x + 1)
        return joined * 2, joined.cumsum(0), joined.sum(0)

    lengths_of(function, (None, 3))


def test_attention_of_any_length():
    """PyTorch asks the device which kernel to take, of symbolic sizes."""
    query = torch.compile(
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), dynamic=True
    )
    for length in (5, 7, 64):
        given = torch.linspace(-1, 1, 2 * 3 * length * 8).view(2, 3, length, 8)
        x, y = given.clone().requires_grad_(), given.to("tpu").requires_grad_()
        F.scaled_dot_product_attention(x, x, x, is_causal=True).square().sum().backward()
        query(y).square().sum().backward()
        torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-4, atol=1e-5)


def test_explain_and_recompiles_say_why_a_graph_has_one_size_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("FUSE_EXPLAIN", "recompiles")
    run = torch.compile(lambda x: x.flip(0) + 1, dynamic=True)
    with torch.no_grad():
        proven = torch.compile(lambda x: x * 2, dynamic=True)
        for length in (3, 4):
            run(torch.ones(length, device="tpu"))
            proven(torch.ones(length, device="tpu"))
        reason = "aten::flip may mix padding with values"
        lines = [line for line in capsys.readouterr().err.splitlines() if "symbolic" in line]
        assert len(lines) == 1 and lines[0].endswith(f"one executable for each of them: {reason}")
        assert "test_sizes.py:" in lines[0]
        found = fuse.explain(run, torch.ones(5, device="tpu"))
        assert f"one executable a size in a compiled graph: {reason}" in found
        assert found.to_dict()["counts"]["one_size_each"] == {reason: 1}
        assert "one executable a size" not in fuse.explain(proven, torch.ones(5, device="tpu"))


class Decoder(nn.Module):
    """One layer of attention over what was seen, which grows by one."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32, 16)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 32)

    def forward(self, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
        x = self.words(token)
        q, k, v = self.qkv(x).split(16, -1)
        keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        x = x + self.out((q @ keys.transpose(1, 2) / 4).softmax(-1) @ values)
        return self.head(x)[:, -1].argmax(-1, keepdim=True), keys, values


def generated(model: nn.Module, device: str, compile: Compile, count: int) -> list[int]:
    run = compile(model)
    token = torch.zeros(1, 1, dtype=torch.long).to(device)
    keys, values = torch.zeros(1, 2, 16).to(device), torch.zeros(1, 2, 16).to(device)
    found = []
    with torch.no_grad():
        for _ in range(count):
            token, keys, values = run(token, keys, values)
            found.append(token.item())
    return found


@only_in("compiled", "accelerator", reason="counts what is compiled")
def test_a_growing_cache_takes_ten_executables_for_510_lengths():
    # Of 2 to 511: one more than 512 would be the next bucket.
    torch.manual_seed(0)
    model = Decoder()
    expected = generated(model, "cpu", lambda run: run, 510)
    model = model.to("tpu")
    fuse.reset_stats()
    compile: Compile = lambda run: torch.compile(run, backend="tpu", dynamic=True)  # noqa: E731
    assert generated(model, "tpu", compile, 510) == expected
    assert fuse.stats()["compiled"]["one_size_each"] == {}
    assert fuse.stats()["compiles"] <= 10


@only_in("compiled", "accelerator", reason="counts what is compiled")
def test_a_ragged_last_batch_takes_one_more():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("tpu")
    compiled = torch.compile(model)

    def epoch() -> None:
        for size in (8, 8, 8, 5):
            compiled(torch.ones(size, 4).to("tpu")).sum().item()

    epoch()
    epoch()
    fuse.reset_stats()
    epoch()
    assert fuse.stats()["compiles"] == 0
    assert fuse.stats()["compiled"]["captures"] == 0
