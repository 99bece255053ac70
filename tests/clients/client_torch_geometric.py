from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, global_mean_pool

from tests.clients.conftest import Case
from tests.clients.steps import equal_losses, normal, training

LIBRARY = "torch-geometric"


def graph(nodes: int = 12, edges: int = 40, seed: int = 1) -> Data:
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(nodes, 8, generator=generator),
        edge_index=torch.randint(0, nodes, (2, edges), generator=generator),
        y=torch.randint(0, 3, (nodes,), generator=generator),
    )


class Nodes(torch.nn.Module):
    """Two convolutions of a graph."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.first, self.second = kind(8, 16), kind(16, 3)

    def forward(self, data: Data) -> torch.Tensor:
        hidden = self.first(data.x, data.edge_index).relu()
        scores: torch.Tensor = self.second(hidden, data.edge_index)
        return scores


@pytest.mark.parametrize("kind", [GCNConv, GATConv], ids=["GCNConv", "GATConv"])
def test_nodes(case: Case, kind: Any) -> None:
    """Classes of a graph's nodes by two layers"""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model, data = Nodes(kind).to(device), graph().to(device)
        return training(model, lambda: torch.nn.functional.cross_entropy(model(data), data.y))

    equal_losses(*case.compare(run))


def test_batch(case: Case) -> None:
    """Graphs of several sizes as a `Batch`: `GINConv` and `global_mean_pool`."""

    def run(device: str) -> list[tuple[float, Any]]:
        torch.manual_seed(0)
        model = GINConv(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())).to(device)
        batch = Batch.from_data_list([graph(5 + size, seed=size) for size in range(4)]).to(device)
        goal = normal(4, 16).to(device)

        def loss() -> torch.Tensor:
            pooled = global_mean_pool(model(batch.x, batch.edge_index), batch.batch)
            return torch.nn.functional.mse_loss(pooled, goal)

        return training(model, loss)

    equal_losses(*case.compare(run))
