"""Devices and their numbers: what belongs together is on one, and copies go between two."""

from __future__ import annotations

import json

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
import json, warnings
warnings.simplefilter("ignore")
import torch
from tests.coverage.operators import ENTRIES
from tests.coverage.samples import Samples
from tests.coverage.transfer import Transfer
found = {}
for name, info in ENTRIES.items():
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


def test_a_rank_makes_tensors_on_its_one_device_by_whichever_of_its_names():
    # A launcher's process calls its only device by its own number, or by none.
    for tier in ("uncompiled", "compiled"):
        found = json.loads(run(FACTORIES, FUSE_TIER=tier, LOCAL_RANK="3"))
        assert len(found) > 20
        assert {name for name, devices in found.items() if set(devices) != {"tpu:0"}} == set()
