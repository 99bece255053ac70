"""Advice: each finding compiles its alternative, and what gains nothing is not said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import fuse
from fuse.aot.heads import CannotJoinError, Joined
from fuse.backends.base import Chunk
from tests.targets.fakes import FakeTarget

Make = Callable[..., FakeTarget]


def test_float32_products_name_the_better_setting(fake: Make) -> None:
    fake()
    a, b = (torch.randn(128, 128).to("tpu") for _ in range(2))
    report = fuse.compile_for("fake", lambda: (a @ b).sum().item())
    (found,) = report.advice
    assert 'set_float32_matmul_precision("medium")' in found["change"]
    assert found["source"].startswith(__file__)
    assert found["cycles_before"] == report.cycles
    assert found["cycles_after"] == report.cycles - 500
    assert found["gain"] == 500 / report.cycles
    assert '"high" makes' in found["proof"]


def test_what_a_step_returns_is_computed_though_nothing_reads_it(fake: Make) -> None:
    fake()
    weight = torch.randn(8, 8).to("tpu").requires_grad_()

    def step() -> torch.Tensor:
        return torch.autograd.grad((weight @ weight).sum(), weight)[0]

    assert fuse.compile_for("fake", step).launches == 1


def test_a_model_without_flaws_gets_no_advice(fake: Make) -> None:
    fake()
    a, b = (torch.randn(128, 128).to("tpu", torch.bfloat16) for _ in range(2))
    report = fuse.compile_for("fake", lambda: (a @ b).float().sum().item())
    assert report.advice == []
    assert "advice    none" in str(report)


def test_narrow_heads_are_joined(fake: Make) -> None:
    fake()
    q = torch.randn(2, 4, 128, 64).to("tpu", torch.bfloat16)
    report = fuse.compile_for(
        "fake", lambda: F.scaled_dot_product_attention(q, q, q).float().sum().item()
    )
    (found,) = report.advice
    assert "4 heads of 64" in found["what"]
    assert "2 heads of 128" in found["change"]
    assert found["cycles_before"] - found["cycles_after"] == 5000


def test_joined_heads_are_the_views_that_the_model_with_wider_heads_has(fake: Make) -> None:
    """Every attention of a training step, and what lies between chunks, as that model has it."""

    def chunks(heads: int, joined: bool) -> set[str]:
        fake()
        torch.manual_seed(0)
        x = torch.randn(2, 8, 384).to("tpu").requires_grad_()

        def step() -> None:
            q, k, v = (p.view(2, 8, heads, -1).transpose(1, 2) for p in (x * 2).split(128, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            torch.tpu.synchronize()  # the gradient's chunk is another one
            y.transpose(1, 2).reshape(2, 8, 128).square().sum().backward()

        targeted = fuse.compile_for("fake", step, advice=False)._targeted
        made = [chunk for planned in targeted.plans for chunk in planned.chunks]
        change = Joined(made, 2) if joined else lambda chunk: chunk
        return {str(change(chunk)) for chunk in made}

    assert chunks(4, joined=True) == chunks(2, joined=False)
    assert chunks(4, joined=False) != chunks(2, joined=False)


def test_heads_that_cannot_be_joined_say_why(fake: Make) -> None:
    fake()

    def attend(q: torch.Tensor, bias: torch.Tensor | None = None) -> list[Chunk]:
        report = fuse.compile_for(
            "fake", lambda: F.scaled_dot_product_attention(q, q, q, bias).sum().item(), advice=False
        )
        return [chunk for planned in report._targeted.plans for chunk in planned.chunks]

    odd = attend(torch.randn(2, 3, 8, 64).to("tpu"))
    with pytest.raises(CannotJoinError, match="3 heads"):
        Joined(odd, 2)
    biased = attend(torch.randn(2, 4, 8, 64).to("tpu"), torch.randn(2, 4, 8, 8).to("tpu"))
    with pytest.raises(CannotJoinError, match="bias for each head"):
        Joined(biased, 2)
    apart = attend(torch.randn(2, 8, 4, 70).to("tpu")[..., :64].transpose(1, 2))
    with pytest.raises(CannotJoinError, match="not beside each other"):
        Joined(apart, 2)


def test_wide_heads_and_odd_numbers_of_heads_are_left_alone(fake: Make) -> None:
    fake()
    for shape in ((2, 4, 128, 128), (2, 3, 128, 64)):
        q = torch.randn(shape).to("tpu", torch.bfloat16)
        report = fuse.compile_for(
            "fake", lambda q=q: F.scaled_dot_product_attention(q, q, q).float().sum().item()
        )
        assert report.advice == [], shape


def test_numbers_of_64_bits_are_narrowed(fake: Make) -> None:
    fake()
    x = torch.randn(64, 64, dtype=torch.float64).to("tpu")
    report = fuse.compile_for("fake", lambda: (x * 2).exp().sum().item())
    (found,) = report.advice
    assert "float64" in found["what"]
    assert found["change"].startswith("float32")
    assert found["cycles_after"] < found["cycles_before"] / 2


def test_what_integers_cost_does_not_depend_on_the_products_beside_them(fake: Make) -> None:
    target = fake()
    x, places = torch.randn(256, 256).to("tpu"), torch.arange(256).to("tpu")
    report = fuse.compile_for("fake", lambda: ((x @ x)[0] * (places + 1)).sum().item())
    (found,) = [one for one in report.advice if "int64" in one["what"]]
    alone = sum("int64" in node.dtypes() for node in target.compiled[0].nodes)
    assert found["cycles_before"] - found["cycles_after"] == 900 * alone


def test_a_few_numbers_of_64_bits_are_not_worth_a_word(fake: Make) -> None:
    fake()
    x = torch.arange(4).to("tpu")
    assert fuse.compile_for("fake", lambda: (x + 1).sum().item()).advice == []


def test_dimensions_are_rounded_up_where_that_pays(fake: Make) -> None:
    def cycles(node: object, variant: object) -> int:
        return 1000 if "100" in str(node) else 100

    fake(cycles=cycles)
    a, b = (torch.randn(s).to("tpu", torch.bfloat16) for s in ((128, 100), (100, 128)))
    report = fuse.compile_for("fake", lambda: (a @ b).float().sum().item())
    (found,) = report.advice
    assert found["change"] == "128 instead of 100"
    assert found["cycles_before"] - found["cycles_after"] == 900


@pytest.mark.parametrize("size", [16, 128])
def test_a_batch_that_does_not_fill_the_matrix_unit_is_named(fake: Make, size: int) -> None:
    """Here a product costs the same for any number of rows; 16 are an eighth of a full unit."""
    fake()
    x, w = (torch.randn(s).to("tpu", torch.bfloat16) for s in ((size, 256), (256, 256)))
    report = fuse.compile_for("fake", lambda: (x @ w).float().sum().item())
    if size == 128:
        assert report.advice == []
        return
    (found,) = report.advice
    assert found["what"] == "1 products of 16 rows: a matrix unit takes 128 at once"
    assert found["change"] == "a batch of 128 rows"
    assert found["cycles_before"] - found["cycles_after"] == int(100 * (1 - 16 / 128))


def test_reads_on_the_host_are_counted_and_one_is_not(fake: Make) -> None:
    fake()
    x = torch.ones(8).to("tpu", torch.bfloat16)

    def many() -> None:
        for at in range(4):
            (x * at).float().sum().item()

    (found,) = fuse.compile_for("fake", many).advice
    assert "4 times the call waits" in found["what"]
    assert found["source"].startswith(__file__)
    once = fuse.compile_for("fake", lambda: (x * 9).float().sum().item())
    assert once.advice == []
