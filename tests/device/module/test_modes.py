"""The three modes: nesting, restoring, wrapping a model, and which operations go together."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fuse
from tests.device.helpers import DEVICE, recorder
from tests.lanes import only_in

MODES = {"debug": fuse.DebugEager, "strict": fuse.StrictEager, "fused": fuse.FusedEager}


def test_modes_nest_restore_and_are_reusable():
    assert fuse.get_mode() == "fused"
    strict = fuse.StrictEager()
    for _ in range(2):
        with strict:
            assert fuse.get_mode() == "strict"
            with fuse.DebugEager(check="nan"):
                assert fuse.get_mode() == "debug"
                with strict:
                    assert fuse.get_mode() == "strict"
                assert fuse.get_mode() == "debug"
            assert fuse.get_mode() == "strict"
        assert fuse.get_mode() == "fused"


def test_an_exception_restores_the_mode():
    with pytest.raises(KeyError), fuse.DebugEager():
        raise KeyError
    assert fuse.get_mode() == "fused"


def test_what_is_recorded_survives_a_change_of_mode():
    x = torch.ones(3, device=DEVICE) * 2
    with fuse.StrictEager():
        y = x + 1
        with fuse.DebugEager():
            z = y * x
    assert z.tolist() == [6, 6, 6]


def chunks_of(name: str) -> int:
    with MODES[name]():
        x = torch.ones(4, device=DEVICE)
        torch.tpu.synchronize()
        before = fuse.stats()["chunks"]
        y = (x * 2 + 1).relu().sum()
        y.item()
        return int(fuse.stats()["chunks"] - before)


@only_in("compiled", "accelerator", reason="counts chunks")
def test_fused_runs_one_chunk_where_the_others_run_one_an_operation():
    assert chunks_of("fused") == 1
    assert chunks_of("strict") == 4
    assert chunks_of("debug") == 4


@pytest.mark.parametrize("name", MODES)
def test_wrapping_a_model_trains_it_and_brings_it_back(name: str):
    def train(model, call, x):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    twin = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    twin.load_state_dict(model.state_dict())
    x = torch.randn(5, 3)
    expected = train(twin, twin, x)
    with MODES[name](model, backend="xla") as m:
        assert {p.device.type for p in m.parameters()} == {"tpu"}
        assert fuse.get_mode() == name
        found = train(model, m, x)
        assert m(x).device.type == "tpu"
    twin(x)
    assert found == pytest.approx(expected, rel=1e-4)
    assert {t.device.type for t in [*model.parameters(), *model.buffers()]} == {"cpu"}
    torch.testing.assert_close(
        dict(model.state_dict()), dict(twin.state_dict()), rtol=1e-4, atol=1e-5
    )


def test_an_optimizer_made_outside_trains_the_wrapped_model():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, x = model.weight.detach().clone(), torch.ones(1, 2)
    with fuse.FusedEager(model) as m:
        m(x).sum().backward()
        optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - 0.1)


def test_a_wrapper_is_reusable_and_moves_nested_inputs():
    class Net(nn.Module):
        def forward(self, pair, *, scale):
            return pair["a"] * scale + pair["b"][0]

    wrapper = fuse.FusedEager(Net())
    for _ in range(2):
        with wrapper as m:
            y = m({"a": torch.ones(2), "b": [torch.ones(2)]}, scale=torch.tensor([2.0, 3.0]))
        assert y.device.type == "tpu" and y.tolist() == [3, 4]


def test_an_error_inside_still_brings_the_model_back():
    model = nn.Linear(2, 2)
    wrapper = fuse.StrictEager(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), wrapper as m:
        m(torch.ones(1, 3))
    assert model.weight.device.type == "cpu" and fuse.get_mode() == "fused"


def test_a_wrapper_without_a_model_cannot_be_called():
    with fuse.FusedEager() as m, pytest.raises(TypeError, match="wraps no model"):
        m(torch.ones(1))


def test_the_same_bits_every_time():
    torch.manual_seed(1)
    x, w = torch.randn(8, 8).to(DEVICE), torch.randn(8, 8).to(DEVICE)
    for name in MODES:
        with recorder(tier="compiled"), MODES[name]():  # else the tier may change, and last bits
            results = [(x @ w).softmax(-1).sum(0).cpu() for _ in range(3)]
        assert all(torch.equal(results[0], other) for other in results[1:])
