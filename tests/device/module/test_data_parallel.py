"""``torch.nn.DataParallel``, on one device and on two."""

from __future__ import annotations

import json

import pytest

from tests.device.helpers import run

TRAIN = """
import json, warnings
warnings.filterwarnings("ignore", "PyTorch is not compiled with NCCL")
import torch
from torch import nn

def train(device, wrap):
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y, losses = torch.randn(9, 4), torch.randn(9, 2).to(device), []
    for _ in range(7):
        loss = (model(x.to(device)) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

print(json.dumps([
    torch.tpu.device_count(), train("tpu", nn.DataParallel), train("cpu", lambda model: model)
]))
"""

COMMUNICATION = """
import json
import torch
from torch.nn.parallel import comm
x = torch.arange(6.0)
parts = comm.scatter(x, [0, 1], chunk_sizes=[4, 2])
whole = [comm.gather(parts, destination=place) for place in (1, "cpu")]
both = comm.broadcast(parts[0], [0, 1])
print(json.dumps([[str(one.device), one.tolist()] for one in (*parts, *whole, *both)]))
"""


@pytest.mark.parametrize("devices", [1, 2])
def test_training_is_the_cpus(devices: int) -> None:
    flags = f"--xla_force_host_platform_device_count={devices}"
    there, found, expected = json.loads(run(TRAIN, XLA_FLAGS=flags))
    assert there == devices
    assert found == pytest.approx(expected, rel=1e-5)


def test_parts_go_to_the_devices_and_come_back() -> None:
    found = json.loads(run(COMMUNICATION, XLA_FLAGS="--xla_force_host_platform_device_count=2"))
    first, whole = [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert found == [
        ["tpu:0", first],
        ["tpu:1", [4.0, 5.0]],
        ["tpu:1", whole],
        ["cpu", whole],
        ["tpu:0", first],
        ["tpu:1", first],
    ]
