"""Forked processes: what the parent's device is to them, and that they end."""

from __future__ import annotations

import pytest

from tests.device.helpers import finish, start
from tests.marks import slow_but

PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch, fuse
x = torch.ones(3, device="tpu", requires_grad=True)
plain = torch.ones(2, 2, device="tpu")
optimizer = torch.optim.SGD([x], lr=0.1)
def step():
    loss = (x * 2).sum(); loss.backward(); optimizer.step(); return loss.item()
for _ in range({steps}): step()
pending = plain * 2
loss = (x * 3).sum()
held = [plain * 4, plain.cpu()]
def use():
    {use}
child = os.fork()
if child == 0:
    try:
        use()
        code = 0
    except fuse.errors.FuseError as error:
        code = 7 if "forked" in str(error) and '"spawn"' in str(error) else 2
    except BaseException as error:
        print(type(error), error, file=sys.stderr)
        code = 3
    {end}
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (plain + 1).sum().item())
"""

USES = {
    "an operation": "plain + 1",
    "item": "plain.sum().item()",
    "read of a pending value": "pending.tolist()",
    "read of a value": "plain.cpu()",
    "print": "str(plain)",
    "move to it": "torch.ones(2).to('tpu')",
    "new tensor": "torch.empty(2, device='tpu')",
    "backward": "loss.backward()",
    "optimizer": "optimizer.step()",
    "foreach": "torch._foreach_add_([plain, pending], 1.0)",
    "synchronize": "torch.tpu.synchronize()",
    "generator": "torch.Generator('tpu').manual_seed(3)",
    "default generator": "torch.tpu.get_rng_state()",
    "random numbers": "torch.rand(2, device='tpu')",
    "save": "import io; torch.save(plain, io.BytesIO())",
    "stats": "fuse.explain(lambda: None)",
}


def fork(use: str, end: str = "os._exit(code)", steps: int = 1, **environment: str) -> str:
    process = start(PROGRAM.format(use=use, end=end, steps=steps), **environment)
    out, errors = finish(process)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors and "Fatal" not in errors, errors
    return out


QUICK = ("an operation", "read of a pending value")


@pytest.mark.parametrize("name", slow_but(QUICK, USES))
def test_a_forked_child_is_told_to_spawn_at_its_first_use(name: str):
    assert fork(USES[name]) == "7 8.0\n"


@pytest.mark.parametrize("use", slow_but(["step()"], ["plain + 1", "step()", "plain.sum().item()"]))
def test_it_is_told_where_streams_are_known_and_calls_run_uncompiled(use: str):
    assert fork(use, steps=7, FUSE_TIER="uncompiled") == "7 8.0\n"


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(code)",
        pytest.param("sys.exit(code)", marks=pytest.mark.slow),
        pytest.param("raise SystemExit(code)", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "use",
    slow_but(
        ["held.clear(); globals().update(plain=None, pending=None, loss=None)"],
        [
            "pass",
            "held.clear(); globals().update(plain=None, pending=None, loss=None)",
            "w = torch.ones(3, requires_grad=True); (w * 2).sum().backward(); torch.manual_seed(1)",
            "view = plain[0].t(); del view; import gc; gc.collect()",
        ],
    ),
)
def test_a_child_that_uses_only_the_cpu_runs_and_ends(use: str, end: str):
    assert fork(use, end) == "0 8.0\n"


THREADED = """
import os, threading, warnings
warnings.simplefilter("ignore")
import torch
x = torch.ones(64, 64, device="tpu")
def work():
    while True:
        (x @ x).sum().item(); torch.ones(3, device="tpu")
for _ in range(2): threading.Thread(target=work, daemon=True).start()
codes = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        y = x[0]
        del y
        try:
            x + 1
        except RuntimeError:
            os._exit(7)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(set(codes), flush=True)
os._exit(0)
"""


def test_locks_that_other_threads_held_at_the_fork_are_not_waited_for():
    assert finish(start(THREADED))[0] == "{7}\n"
