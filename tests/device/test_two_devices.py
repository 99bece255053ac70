"""Two devices of one platform: what belongs together is on one, and copies go between them."""

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
    for text in refused.values():
        assert "all tensors to be on the same device, but found at least two devices, tpu:" in text
    assert copied == [[5.0] * 3] * 3 and added == [[5.0] * 3] * 3
