"""Recurrent layers: packed sequences of any order, first states, projections, dropout, errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

from tests.device.accelerator.alike import assert_same_error
from tests.device.helpers import DEVICE
from tests.programs.harness import compare_with_cpu

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

LAYERS: dict[str, Callable[..., nn.RNNBase]] = {
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
    "GRU": nn.GRU,
    "LSTM": nn.LSTM,
    "projected": lambda *sizes, **options: nn.LSTM(*sizes, proj_size=2, **options),
    "without bias": lambda *sizes, **options: nn.GRU(*sizes, bias=False, **options),
}


def trained(layer: nn.RNNBase, device: torch.device, *leaves: torch.Tensor, loss: Any) -> list[Any]:
    """Everything that a pass gives: the gradients of the leaves and of the weights."""
    loss.backward()
    return [one.grad for one in (*leaves, *layer.parameters())]


@pytest.mark.parametrize("name", LAYERS)
def test_packed_sequences_in_any_order(name: str):
    def program(device):
        layer = LAYERS[name](3, 4, num_layers=2, bidirectional=True).to(device)
        rows = [torch.randn(length, 3).to(device).requires_grad_() for length in (2, 5, 1, 5)]
        packed = pack_sequence(rows, enforce_sorted=False)
        y, state = layer(packed)
        padded, lengths = pad_packed_sequence(y, batch_first=True, padding_value=-7.0)
        grads = trained(layer, device, *rows, loss=padded.square().sum())
        assert y.batch_sizes.device.type == "cpu" and y.data.device.type == device.type
        return padded, lengths, state, y.batch_sizes, y.sorted_indices, grads

    compare_with_cpu(program)


@pytest.mark.parametrize("name", LAYERS)
def test_first_states_have_gradients(name: str):
    def program(device):
        layer = LAYERS[name](3, 4).to(device)
        wide = 2 if name == "projected" else 4
        x, h, c = (torch.randn(*s).to(device).requires_grad_()
                   for s in ((5, 2, 3), (1, 2, wide), (1, 2, 4)))  # fmt: skip
        leaves = (x, h, c) if isinstance(layer, nn.LSTM) else (x, h)
        y, state = layer(x, (h, c) if isinstance(layer, nn.LSTM) else h)
        total = y.sum() + sum(one.square().sum() for one in (state if len(leaves) > 2 else [state]))
        return y, state, trained(layer, device, *leaves, loss=total)

    compare_with_cpu(program)


@pytest.mark.parametrize("name", LAYERS)
def test_one_sequence_without_a_batch_and_a_batch_of_none(name: str):
    def program(device):
        layer = LAYERS[name](3, 4).to(device)
        empty, state = layer(torch.ones(2, 0, 3, device=device))
        return layer(torch.randn(5, 3).to(device)), empty, state

    compare_with_cpu(program)


def test_dropout_lies_between_layers_and_only_in_training():
    layer = nn.LSTM(3, 4, num_layers=2, dropout=0.5).to(DEVICE)
    x = torch.randn(6, 2, 3).to(DEVICE)

    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return layer(x)[0].detach().cpu()

    assert torch.equal(drawn(1), drawn(1)) and not torch.equal(drawn(1), drawn(2))
    layer.eval()
    assert torch.equal(drawn(1), drawn(2))
    expected = copy.deepcopy(layer).cpu()(x.cpu())[0].detach()
    torch.testing.assert_close(drawn(1), expected, rtol=1e-4, atol=1e-5)


def test_a_packed_sequence_moves_with_its_order():
    rows = [torch.arange(6.0).view(3, 2), torch.ones(1, 2), torch.zeros(4, 2)]
    packed = pack_sequence(rows, enforce_sorted=False)
    for moved in (packed.to(DEVICE), packed.tpu(), packed.to("tpu:0")):
        assert moved.is_tpu and moved.sorted_indices.device.type == "tpu"
        assert moved.batch_sizes.device.type == "cpu" and moved.to(DEVICE) is moved
        here = moved.cpu()
        assert isinstance(here, PackedSequence) and torch.equal(here.data, packed.data)
        for mine, other in zip(rows, nn.utils.rnn.unpack_sequence(moved), strict=True):
            assert torch.equal(other.cpu(), mine)
    assert moved.double().data.dtype == torch.float64


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_autocast_lowers_a_layer(kind: Any):
    """Of the CPU's own autocast it lowers the LSTM alone."""
    layer, x = kind(3, 4), torch.randn(5, 2, 3)
    expected, _ = layer(x)
    expected.square().sum().backward()
    lowered = copy.deepcopy(layer).to(DEVICE)
    lowered.zero_grad()
    with torch.autocast("tpu", dtype=torch.bfloat16):
        found, _ = lowered(x.to(DEVICE))
    assert found.dtype == torch.bfloat16
    found.float().square().sum().backward()
    torch.testing.assert_close(found.float().cpu(), expected, rtol=5e-2, atol=5e-2)
    for mine, other in zip(lowered.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=5e-2, atol=5e-2)


ERRORS: dict[str, tuple[Callable[[torch.device], object], str]] = {
    "another width": (
        lambda device: nn.LSTM(3, 4).to(device)(torch.ones(2, 1, 5, device=device)),
        "input.size(-1) must be equal to input_size. Expected 3, got 5",
    ),
    "a state of another batch": (
        lambda device: nn.GRU(3, 4).to(device)(
            torch.ones(2, 1, 3, device=device), torch.ones(1, 2, 4, device=device)
        ),
        "Expected hidden size (1, 1, 4), got [1, 2, 4]",
    ),
    "another dtype": (
        lambda device: nn.RNN(3, 4).to(device)(torch.ones(2, 1, 3, device=device).double()),
        "does not match weight dtype (torch.float32)",
    ),
    "lengths in no order": (
        lambda device: pack_sequence([torch.ones(n, 2, device=device) for n in (1, 2)]),
        "must be sorted in decreasing order",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_arguments_are_refused_as_on_the_cpu(name: str):
    assert_same_error(*ERRORS[name])


def test_a_layer_and_its_input_are_on_one_device():
    with pytest.raises(RuntimeError, match="not at the same device, found input tensor at cpu"):
        nn.LSTM(3, 4).to(DEVICE)(torch.ones(2, 1, 3))
