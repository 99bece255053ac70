"""What first calls import: nothing that takes a second, or that an interrupt leaves broken."""

from tests.device.helpers import run

CALLS = """
import sys
import torch
LARGE = ("torch.", "sympy", "mpmath")
from torch.nn import functional
x = torch.ones(4, 4, device="tpu")
imported = set(sys.modules)
y = (x + 1).add_(1).div(3).mul_(2)
y = functional.gelu(functional.layer_norm(y, (4,))).clamp(-1, 1)
y = torch.where(y > 0, y, -y).lerp(x, 0.5).softmax(-1).log_softmax(-1)
functional.cross_entropy(functional.linear(y, x), torch.zeros(4, dtype=torch.long, device="tpu"))
y.tolist()
late = sorted(name for name in set(sys.modules) - imported if name.startswith(LARGE))
print("torch._dynamo" in sys.modules, late)
"""

COMPILED = """
import torch
x = torch.ones(4, device="tpu")
(x + 1).tolist()
import torch._dynamo
found = torch.compile(lambda x: (x + 1).div(3).sum())(x)
print(round(found.item(), 3))
from fuse.trace import without_dynamo
print(any(getattr(f, "__dynamo_disable", None) is f for f in without_dynamo._disabled()))
"""


def test_a_recorded_call_imports_no_dynamo() -> None:
    assert run(CALLS, fresh=True, FUSE_TIER="compiled") == "False []\n"


def test_dynamo_leaves_references_alone_once_it_is_there() -> None:
    assert run(COMPILED, fresh=True) == "2.667\nFalse\n"
