"""Recurrent networks: one and two layers, both directions, packed sequences, single cells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.marks import slow_but
from tests.programs.harness import compare_with_cpu, train

pytestmark = pytest.mark.usefixtures("mode")


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_layer_trains(kind: Any):
    def program(device):
        model = kind(5, 6, batch_first=True)
        x = torch.randn(3, 4, 5)
        return train(model, (x,), lambda m, x: m(x)[0].square().mean(), device, lr=0.5)

    compare_with_cpu(program, runs=2)


@pytest.mark.parametrize("kind", slow_but([nn.LSTM], [nn.GRU, nn.LSTM]))
def test_two_layers_in_both_directions(kind: Any):
    def program(device):
        model = kind(3, 4, num_layers=2, bidirectional=True).to(device)
        x = torch.randn(3, 2, 3).to(device).requires_grad_()
        y, state = model(x)
        y.sum().backward()
        return y, state, x.grad, [p.grad for p in model.parameters()]

    compare_with_cpu(program)


def test_cells_in_a_python_loop():
    def program(device):
        lstm, gru = nn.LSTMCell(3, 4).to(device), nn.GRUCell(4, 4).to(device)
        x = torch.randn(5, 2, 3).to(device)
        h = c = g = torch.zeros(2, 4, device=device)
        for step in x:
            h, c = lstm(step, (h, c))
            g = gru(h, g)
        g.square().sum().backward()
        return h, c, g, lstm.weight_hh.grad, gru.bias_ih.grad

    compare_with_cpu(program)


def test_a_packed_sequence():
    def program(device):
        model = nn.GRU(3, 4, batch_first=True).to(device)
        x = torch.randn(3, 5, 3).to(device)
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
        y, state = model(packed)
        padded, lengths = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
        padded.square().sum().backward()
        return padded, lengths, state, model.weight_ih_l0.grad

    compare_with_cpu(program)
