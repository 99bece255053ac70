"""Devices and their numbers: what belongs together is on one, and copies go between two."""

from __future__ import annotations

import json

import pytest

from tests.device.helpers import run

TWO = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}

PROGRAM = """
import json, torch
x, y = (torch.full((3, 3), float(index), device=f"tpu:{index}") for index in (1, 0))
refused = {}
def refuse(name, call):
    try:
        call()
    except RuntimeError as error:
        refused[name] = str(error)
refuse("add", lambda: x + y)
refuse("in place", lambda: x.add_(y))
refuse("product", lambda: x @ y)
refuse("list", lambda: torch.cat([x, y]))
refuse("out", lambda: torch.neg(x, out=y))
refuse("index", lambda: x[y.long()])
x.copy_(y + 5)
print(json.dumps([refused, x.tolist(), (x.to(y.device) + y).tolist()]))
"""


def test_operands_on_two_devices_are_refused_and_copies_are_not():
    refused, copied, added = json.loads(run(PROGRAM, **TWO))
    assert set(refused) == {"add", "in place", "product", "list", "out", "index"}
    indexed = "indices should be either on cpu or on the same device as the indexed tensor (tpu:"
    assert indexed in refused.pop("index")
    for text in refused.values():
        assert "all tensors to be on the same device, but found at least two devices, tpu:" in text
    assert copied == [[5.0] * 3] * 3 and added == [[5.0] * 3] * 3


FACTORIES = """
import json, os, warnings
warnings.simplefilter("ignore")
import torch
from tests.coverage.operators import ENTRIES
from tests.coverage.samples import Samples
from tests.coverage.transfer import Transfer
found = {}
names = os.environ.get("NAMES", "").split() or ENTRIES
for name, info in ((name, ENTRIES[name]) for name in names):
    if torch.float32 not in info.supported_dtypes("cpu"):
        continue
    for sample in Samples(info).plain(torch.float32, 2):
        if "device" not in sample.kwargs:
            continue
        for device in ("tpu", "tpu:3"):
            value, args, kwargs = Transfer("tpu")((sample.input, sample.args, sample.kwargs))
            made = info.op(value, *args, **{**kwargs, "device": device})
            found.setdefault(name, []).append(str(made.device))
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_rank_makes_tensors_on_its_one_device_by_whichever_of_its_names():
    # A launcher's process calls its only device by its own number, or by none.
    names = ""  # all: which of them take a device is found once, in half a minute
    for tier in ("uncompiled", "compiled"):
        found = json.loads(run(FACTORIES, FUSE_TIER=tier, LOCAL_RANK="3", NAMES=names))
        assert len(found) > 20
        names = " ".join(found)
        assert {name for name, devices in found.items() if set(devices) != {"tpu:0"}} == set()


SECOND = """
import json

import jax, jax.numpy as jnp, numpy as np, torch
from torch import nn
import fuse

def train(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    x, losses = torch.linspace(-1, 1, 24).reshape(6, 4).to(device), []
    for _ in range(8):
        optimizer.zero_grad()
        loss = (model(x) + torch.ones(6, 1, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in model.parameters()]

def place(tensor):
    return [str(tensor.device), *(one.id for one in fuse.to_jax(tensor).devices())]

@fuse.kernel
def called_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

expected = train("cpu")[0]
losses, parameters = train("tpu:1")
train("tpu:0")
with torch.tpu.device(1):
    made = [torch.randn(3, device="tpu"), torch.ones(2, device="tpu") + 1]
made += [torch.cat(parameters[1:2] * 2), *torch._foreach_mul(parameters, 2.0)]
made += [torch.randperm(5, device="tpu:1")]
made += [torch.compile(lambda w: (w @ w.T).relu())(parameters[0]), called_back(parameters[0])]
back = [called_back(p).cpu().tolist() for p in (parameters[1], parameters[1].to("tpu:0"))]
print(json.dumps([expected, losses, [place(one) for one in [*parameters, *made]], back]))
"""


def test_a_program_of_the_second_device_is_there():
    expected, losses, places, back = json.loads(run(SECOND, **TWO))
    assert losses == pytest.approx(expected, rel=1e-5)
    assert places == [["tpu:1", 1]] * len(places)
    assert back[0] == pytest.approx(back[1])
