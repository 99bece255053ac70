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
y = functional.gelu(y).clamp(-1, 1).lerp(x, 0.5).softmax(-1).log_softmax(-1)
functional.cross_entropy(functional.linear(y, x), torch.zeros(4, dtype=torch.long, device="tpu"))
y.tolist()
print(sorted(name for name in set(sys.modules) - imported if name.startswith(LARGE)))
functional.layer_norm(torch.where(y > 0, y, x), (4,)).tolist()
print("sympy" in sys.modules, "torch._dynamo" in sys.modules)
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


def test_everyday_calls_import_nothing_large_and_none_imports_dynamo() -> None:
    assert run(CALLS, fresh=True, FUSE_TIER="compiled") == "[]\nTrue False\n"


def test_dynamo_leaves_references_alone_once_it_is_there() -> None:
    assert run(COMPILED, fresh=True) == "2.667\nFalse\n"


INTERRUPTED = """
import signal
import sys
import torch

class Alarm(Exception):
    pass

def ring(number, frame):
    raise Alarm

signal.signal(signal.SIGALRM, ring)
x = torch.ones(3, 4, device="tpu")
(x + 1).sum(0).tolist()
print("sympy" in sys.modules)
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    torch.nn.functional.embedding(torch.tensor([1, 2], device="tpu"), x)
    while True:
        pass
except Alarm:
    print("came")
import sympy
print(hasattr(sympy, "Symbol"), "torch.fx.experimental.symbolic_shapes" in sys.modules)
print(torch.nn.functional.embedding(torch.tensor([1, 2], device="tpu"), x).sum().item())
"""


def test_an_interrupt_while_inference_imports_comes_after_it() -> None:
    assert run(INTERRUPTED, fresh=True, FUSE_TIER="compiled") == "False\ncame\nTrue True\n8.0\n"
