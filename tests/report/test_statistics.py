"""``fuse.stats``, ``fuse.explain``, and why traces are cut."""

from __future__ import annotations

import pytest
import torch

import fuse
from tests.device.helpers import DEVICE, host_only, mode

KEYS = {
    "operations",
    "traces",
    "cuts",
    "chunks",
    "compiles",
    "compile_seconds",
    "cache",
    "host_fallbacks",
}


def cuts(call) -> dict[str, int]:
    """The cuts that ``call`` makes, by reason."""
    torch.tpu.synchronize()
    before = fuse.stats()["cuts"]
    call()
    after = fuse.stats()["cuts"]
    return {k: v - before.get(k, 0) for k, v in after.items() if v != before.get(k, 0)}


def test_the_keys_are_there_and_count():
    fuse.reset_stats()
    empty = fuse.stats()
    assert set(empty) >= KEYS
    assert empty["operations"] == empty["chunks"] == empty["traces"] == 0
    assert empty["cuts"] == {} and empty["host_fallbacks"] == {}
    x = torch.ones(3, device=DEVICE)
    (x.sub(0.12345).sinh() + 1).sum().item()
    full = fuse.stats()
    assert full["operations"] == 5 and full["traces"] == full["chunks"] == 1
    assert full["cuts"] == {"host_read": 1}
    assert set(full["cache"]) >= {"memory"}


def test_a_reset_sets_the_caches_counters_to_zero_too():
    torch.ones(3, device=DEVICE).mul(0.777).cpu()
    fuse.reset_stats()
    counters = fuse.stats()["cache"]["memory"]
    assert counters["misses"] == counters["hits"] == 0


def test_views_are_no_operations():
    x = torch.ones(4, 4, device=DEVICE)
    before = fuse.stats()["operations"]
    y = x.t()[1:].permute(1, 0).unsqueeze(0).expand(2, 4, 3)[..., ::2].detach()
    assert y.shape == (2, 4, 2) and x.view(-1).chunk(2)[1].data.shape == (8,)
    assert fuse.stats()["operations"] == before


READS = {
    "item": lambda x: x.sum().item(),
    "cpu": lambda x: x.cpu(),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: bool(x[0] > 0),
    "print": lambda x: repr(x),
    "nonzero": lambda x: x.nonzero(),
    "equal": lambda x: torch.equal(x, x + 1),
}


@pytest.mark.parametrize("name", READS)
def test_a_host_read_cuts(name: str):
    x = torch.ones(3, device=DEVICE)
    assert set(cuts(lambda: READS[name](x * 3))) == {"host_read"}


def test_other_reasons():
    x = torch.ones(3, device=DEVICE)
    w = torch.ones(3, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    w.grad = x.clone()

    def change():
        x.mul(2)
        with mode("strict"):
            pass

    assert cuts(lambda: (x * 2, torch.tpu.synchronize())) == {"synchronize": 1}
    assert cuts(optimizer.step) == {"optimizer_step": 1}
    assert cuts(change) == {"mode_change": 1}
    with mode("strict"):
        assert cuts(lambda: (x * 2).relu()) == {"every_operation": 2}


def test_nothing_recorded_is_no_cut():
    x = torch.ones(3, device=DEVICE)
    torch.tpu.synchronize()
    assert cuts(lambda: (x.view(3), torch.tpu.synchronize(), x.cpu())) == {}


def test_a_host_fallback_cuts_and_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    x = torch.arange(4, device=DEVICE)
    assert cuts(lambda: host_only(x + 1)) == {"host_fallback": 1}
    assert fuse.stats()["host_fallbacks"]["fuse_tests::host_only"] >= 1


def test_explain_tells_what_happened():
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    seen = []

    def program(y: torch.Tensor, factor: float = 1.0) -> None:
        seen.append(y.mul(factor).sum().item())
        y.t().add(1)

    text = fuse.explain(program, x, full=True, factor=2.0)
    assert seen == [30.0]
    assert "cut by host_read" in text and "cut by synchronize" not in text.split("trace 0")[0]
    assert "mul.Tensor" in text and "float32[2,3]" in text and "test_statistics.py" in text
    assert "compiles" in text and "chunk 0" in text and "host fallbacks none" in text
    lines = dict(line.split(None, 1) for line in text.splitlines()[:1])
    assert lines["operations"].startswith("3 ")


def test_explain_names_fallbacks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    text = fuse.explain(lambda: host_only(torch.arange(3, device=DEVICE)))
    assert "fuse_tests::host_only" in text


def test_explain_passes_errors_on_and_stops_watching():
    with pytest.raises(ZeroDivisionError):
        fuse.explain(lambda: 1 / 0)
    assert fuse.explain(lambda: None).splitlines()[0].startswith("operations  0")
