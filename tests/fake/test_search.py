"""``fuse.search_pod``: layouts ranked, and refused with what fits, by a made-up compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import fuse
from fuse.aot.search import Layout, layouts
from fuse.backends.estimates import Estimate, Transfer, Variant
from fuse.backends.fake.backend import FakeBackend
from fuse.errors import FuseError
from tests.targets.fakes import MACHINE, FakeTarget


def build(layout: Layout, layers: int) -> Callable[[], None]:
    with torch.device("tpu"):
        model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(layers)])
        x = torch.randn(8 * layout.batch, 64)
    fully_shard(model, mesh=layout.mesh()["replicate", "shard"])

    def step() -> None:
        model(x).square().mean().backward()

    return step


class Priced(FakeTarget):
    """A step takes 1 ms and 1 more for each product; a byte of its inputs takes a thousand."""

    variants: list[Variant] = []  # noqa: RUF012  (of this test alone)

    def compile(self, step: Any, variant: Variant = Variant()) -> tuple[Estimate, bytes]:  # noqa: B008
        self.variants.append(variant)
        products = sum(node.target in ("mm", "addmm") for node in step.nodes)
        inputs = sum(4 * torch.Size(spec.shape).numel() for _, spec in step.inputs)
        moved = (Transfer("all-gather", 100, 2, 0.0, 1e-4, 1e-4),)
        seconds = 1e-3 * (1 + products)
        return Estimate(
            step_seconds=seconds,
            temporary_bytes=1000 * inputs,
            transfers=moved,
            scheduled=variant.scheduled,
        ), b""


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> None:
    Priced.variants = []
    monkeypatch.setattr(FakeBackend, "target", lambda self, name, seconds: Priced())


@pytest.mark.usefixtures("priced")
def test_layouts_are_ranked_by_seconds_a_sequence() -> None:
    choices = [Layout(shard=4), Layout(shard=4, batch=2), Layout(replicas=2, shard=2)]
    found = fuse.search_pod("v5e:2x2", build, layers=8, choices=choices)
    assert [one.batch for one, _ in found.ranked] == [2, 1, 1]
    assert len(Priced.variants) == 6
    assert all(one.scheduled for one in Priced.variants)
    best = found.ranked[0][1]
    # Of each layer a product forward, one for its weight, and but for the first one for its input.
    assert best.step_seconds == pytest.approx(1e-3 * (1 + 3 * 8 - 1))
    assert "   1  3.00 ms a sequence" in str(found)
    assert "FSDP 4, 2 sequences, activations recomputed" in str(found)
    assert found.to_dict()["ranked"][0]["layout"]["batch"] == 2


@pytest.mark.usefixtures("priced")
def test_what_does_not_fit_is_refused_with_two_layouts_that_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choices = [Layout(shard=4), Layout(shard=4, batch=2), Layout(replicas=4)]
    whole = fuse.search_pod("v5e:2x2", build, layers=8, choices=choices)
    memory = max(report.peak_bytes for _, report in whole.ranked) - 1
    monkeypatch.setattr("fuse.aot.pod.published", lambda of: _published(memory))
    found = fuse.search_pod("v5e:2x2", build, layers=8, choices=choices)
    ((refused, _),) = found.refused
    assert refused == Layout(replicas=4)
    text = str(found)
    assert "refused  HSDP 4, 1 sequences" in text
    assert "float32[64,64]" in text
    assert text.count("  fits: FSDP 4") == 2


def _published(memory: int) -> dict[str, Any]:
    return {"flops": MACHINE.flops, "memory": memory}


def test_usual_layouts_use_all_ranks_each_once() -> None:
    found = layouts(16)
    assert len(found) == len(set(found)) == 12
    assert {one.ranks for one in found} == {16}
    assert Layout(shard=2, tensor=8) in found
    assert Layout(replicas=2, shard=8) in found
    assert sum(not one.recompute for one in found) == 2


def test_a_search_of_nothing_is_refused() -> None:
    with pytest.raises(FuseError, match="a search needs a layout or more"):
        fuse.search_pod("v5e:2x2", build, layers=8, choices=[])
