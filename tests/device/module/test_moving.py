"""Modules and tensors that move to the device and back stay the objects they were."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def language_model() -> nn.Module:
    """An embedding whose weights are the output layer's as well."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(11, 8), nn.Tanh(), nn.Linear(8, 11, bias=False))
    net[2].weight = net[0].weight
    return net


def train(net: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> list[float]:
    tokens = torch.arange(10, device=device)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(tokens), tokens.flip(0))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_tied_weights_stay_tied():
    """And train to what they train to on the CPU."""
    net, reference = language_model().to("tpu"), language_model()
    assert net[2].weight is net[0].weight
    assert len(list(net.parameters())) == 1
    ours = train(net, torch.optim.AdamW(net.parameters(), lr=0.1), "tpu")
    theirs = train(reference, torch.optim.AdamW(reference.parameters(), lr=0.1), "cpu")
    assert ours == pytest.approx(theirs, rel=1e-4)
    torch.testing.assert_close(net[2].weight.cpu(), reference[2].weight, rtol=1e-3, atol=1e-4)


def test_an_optimizer_made_before_the_move():
    net, reference = language_model(), language_model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.to("tpu")
    ours = train(net, optimizer, "tpu")
    theirs = train(reference, torch.optim.SGD(reference.parameters(), lr=0.1), "cpu")
    assert ours == pytest.approx(theirs, rel=1e-4)


def test_gradients_move_along_and_accumulate_where_they_are():
    """The place that accumulates a gradient belongs to a device: there and back it is renewed."""
    net = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    weight = net.weight
    for device in ("cpu", "tpu", "cpu", "tpu"):
        net.to(device)
        assert net.weight is weight
        assert weight.grad is None or weight.grad.device.type == device
        net(x.to(device)).square().sum().backward()
    reference = nn.Linear(3, 2)
    reference.load_state_dict({name: value.cpu() for name, value in net.state_dict().items()})
    reference(x).square().sum().backward()
    torch.testing.assert_close(weight.grad.cpu(), 4 * reference.weight.grad)


def test_data_is_set_across_devices():
    parameter = nn.Parameter(torch.arange(4.0))
    version = parameter._version
    alias = torch.zeros(4, device="tpu")
    parameter.data = alias
    assert parameter.device.type == "tpu"
    assert parameter._version == version
    parameter.data.fill_(3.0)
    assert alias.tolist() == [3.0] * 4  # it shares the other's memory, as on every device
    parameter.data = parameter.data.cpu()
    assert parameter.device.type == "cpu"
    alias.zero_()
    assert parameter.tolist() == [3.0] * 4


def test_a_recurrent_net_moves_with_its_flat_weights():
    net = nn.LSTM(3, 5, num_layers=2)
    x = torch.randn(7, 2, 3)
    expected = net(x)[0]
    weights = list(net.parameters())
    net.to("tpu")
    assert all(one is other for one, other in zip(weights, net.parameters(), strict=True))
    torch.testing.assert_close(net(x.to("tpu"))[0].cpu(), expected)


def test_other_dtypes_and_channels_last():
    net = nn.Conv2d(3, 4, 3)
    weight = net.weight
    net.to("tpu", dtype=torch.bfloat16, memory_format=torch.channels_last)
    assert net.weight is weight
    assert weight.dtype == torch.bfloat16
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_a_sparse_tensor_does_not_become_the_device_s():
    dense = torch.ones(2, device="tpu")
    assert not torch._has_compatible_shallow_copy_type(dense, torch.ones(2).to_sparse())
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        dense.data = torch.ones(2).to_sparse()
