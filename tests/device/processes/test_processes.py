"""Whole processes: light imports, ends at any point, interrupts, forks."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.cache.common import spoil
from tests.device.helpers import finish, run, start
from tests.lanes import only_in
from tests.marks import slow_but

IMPORT = """
import sys, torch
assert torch.device("tpu").type == "tpu" and hasattr(torch, "tpu")
import fuse
fuse.FusedEager, fuse.StrictEager, fuse.set_mode
assert "jax" not in sys.modules and "fuse.device._core" not in sys.modules, "too early"
assert not torch.tpu.is_initialized()
torch.manual_seed(3)
torch.tpu.synchronize()
assert not torch.tpu.is_initialized()
x = torch.rand(2, device="tpu")
assert torch.tpu.is_initialized() and "jax" in sys.modules
torch.manual_seed(3)
assert torch.equal(x.cpu(), torch.rand(2, device="tpu").cpu())
import jax
assert not jax.config.jax_enable_x64, "fuse changed the process-wide setting"
print("light")
"""


def test_importing_is_light_and_the_device_starts_at_its_first_use():
    assert run(IMPORT, fresh=True) == "light\n"


def test_autoload_can_be_turned_off():
    code = "import torch; print(hasattr(torch, 'tpu'))"
    assert run(code, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "False\n"


ENDS = {
    "recorded and never read": "x = torch.ones(3, device='tpu') + 1",
    "inside a mode": "fuse.StrictEager().__enter__(); x = torch.ones(3, device='tpu') + 1",
    "work in flight": (
        "x = torch.ones(400, 400, device='tpu')\n"
        "for _ in range(20): x = (x @ x) * 1e-3\n"
        'lazy.core().cut("synchronize")'
    ),
    "an exception": "x = torch.ones(3, device='tpu') * 2; raise SystemExit(0)",
    "a thread that records": (
        "import threading, itertools\n"
        "def go():\n"
        "    x = torch.ones(3, device='tpu')\n"
        "    for _ in itertools.count(): x = x * 0.5; x.sum().item()\n"
        "threading.Thread(target=go, daemon=True).start(); import time; time.sleep(0.5)"
    ),
    "a thread that starts the device": (
        "import threading, time\n"
        "go = lambda: print((torch.ones(3, device='tpu') + 1).tolist())\n"
        "threading.Thread(target=go, daemon=True).start(); time.sleep(0.2)"
    ),
    "os._exit": "x = torch.ones(3, device='tpu') + 1; import os; os._exit(0)",
    "a backward graph in a cycle": (
        "x = torch.ones(3, device='tpu', requires_grad=True); y = (x * 2).exp()\n"
        "holder = [y]; holder.append(holder); y.register_hook(lambda g, h=holder: g)"
    ),
    "at exit": "import atexit; x = torch.ones(2, device='tpu'); atexit.register(lambda: x + 1)",
}


QUICK = ["work in flight", "a thread that records", "a thread that starts the device"]


@pytest.mark.parametrize("name", slow_but(QUICK, ENDS))
def test_a_process_ends_at_any_point(name: str):
    code = f"import torch, fuse\nfrom fuse.device import lazy\n{ENDS[name]}"
    process = start(code, fresh="a thread" in name)
    _, errors = finish(process)
    assert process.returncode == 0, errors
    assert "Fatal" not in errors and "Traceback" not in errors, errors


INTERRUPTED = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
import torch, fuse
from fuse.device import lazy
x = torch.ones(64, 64, device="tpu")
engine = lazy.engine()
compile = engine.backend.compile
def slow(chunk):
    os.kill(os.getpid(), signal.SIGINT)
    return compile(chunk)
torch.tpu.synchronize()
engine.backend.compile = slow
caught = 0
try:
    y = (x @ x).tanh()
    y.cpu()
except KeyboardInterrupt:
    caught += 1
engine.backend.compile = compile
assert y.cpu()[0, 0].item() == 1.0
z = torch.zeros(3, device="tpu")
try:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    while True:
        z = z + 1
        z.sum().item()
except KeyboardInterrupt:
    caught += 1
assert (torch.zeros(3, device="tpu") + 2).tolist() == [2, 2, 2]
print(caught)
"""


@only_in("compiled", "accelerator", reason="interrupts a compile")
def test_control_c_during_a_compile_and_a_run_leaves_the_device_usable():
    assert run(INTERRUPTED) == "2\n"


OVERWRITTEN = """
import os, random, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
import torch
weights = [torch.zeros(50, device="tpu") for _ in range(6)]
generator = random.Random(0)
def step():
    for weight in weights:
        weight.add_(1)
    return weights[0].sum().item()
for _ in range(3):
    step()
caught = 0
for _ in range(60):
    timer = threading.Timer(generator.uniform(0.001, 0.02), os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        while True:
            step()
    except KeyboardInterrupt:
        caught += 1
    timer.join()
    for weight in weights:  # whole numbers of steps, or of one weight more
        values = weight.cpu()
        assert values[0].item() >= 3 and (values == values[0]).all(), values
print(caught)
"""


@pytest.mark.slow
def test_control_c_loses_no_tensor_that_is_overwritten():
    """Its memory is donated: until the result is stored, it has no value."""
    assert run(OVERWRITTEN) == "60\n"


ALARMED = """
import signal
import torch
held = torch.zeros(50, device="tpu")
class Late(BaseException):
    pass
def ring(*_):
    raise Late
def step():
    held.add_(1)
    held.sum().item()
for _ in range(3):
    step()
signal.signal(signal.SIGALRM, ring)
caught = 0
for number in range(40):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002 + number * 0.0003)
        while True:
            step()
    except Late:
        caught += 1
    assert (held.cpu() == held.cpu()[0]).all()
print(caught, signal.getsignal(signal.SIGALRM) is ring)
"""


@pytest.mark.slow
def test_a_handler_of_the_programs_own_loses_none_either():
    assert run(ALARMED) == "40 True\n"


COLLECTED = """
import gc, os, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
import torch
(torch.ones(3, device="tpu") + 1).cpu()
caught = 0
for _ in range(20):
    # During the collection, which takes longer: what runs at its end meets the interrupt first.
    timer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        while timer.is_alive():
            gc.collect()
        time.sleep(0.01)
    except KeyboardInterrupt:
        caught += 1
    timer.join()
print(caught)
"""


@pytest.mark.slow
def test_an_interrupt_during_a_garbage_collection_is_not_lost():
    assert run(COLLECTED) == "20\n"


@pytest.mark.slow
def test_a_killed_process_leaves_nothing_in_the_way():
    process = start(
        "import torch\nx = torch.ones(3, device='tpu')\nprint('up', flush=True)\n"
        "for n in range(10**6): (x * n).sin().sum().item()"
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    finish(process)
    assert run("import torch; print((torch.ones(2, device='tpu') * 3).sum().item())") == "6.0\n"


FORKED = """
import os, warnings
import torch
warnings.simplefilter("ignore")
x = torch.ones(2, device="tpu")
x.cpu()
child = os.fork()
if child == 0:
    code = 1
    try:
        torch.tpu.init()
    except RuntimeError as error:
        code = 7 if "spawn" in str(error) else 2
    finally:
        os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + 1).tolist())
"""


@pytest.mark.slow
def test_a_forked_child_is_told_to_spawn():
    assert run(FORKED) == "7 [2.0, 2.0]\n"


@pytest.mark.slow
def test_limits_and_modes_come_from_the_environment():
    code = (
        "import torch, fuse\n"
        "x = torch.ones(2, device='tpu')\n"
        "for _ in range(40): x = x * 0.5 + 1\n"
        "torch.tpu.synchronize()\n"
        "print(fuse.get_mode(), fuse.stats()['cuts'].get('size_bound', 0) > 0)"
    )
    assert run(code, FUSE_MAX_OPERATIONS="16", FUSE_TIER="compiled") == "fused True\n"
    assert run(code, FUSE_MODE="strict") == "strict False\n"
    process = start(code, FUSE_MODE="turbo")
    _, errors = finish(process)
    assert process.returncode != 0 and "'debug', 'strict', 'fused'" in errors


CACHED = """
import torch
x = torch.arange(12.0).view(3, 4).to("tpu")
print(((x @ x.t()).relu() + 1).sum().item())
from fuse.device import lazy
assert lazy.engine().executables.cache.flush(60)
"""


@pytest.mark.slow
def test_a_damaged_cache_costs_no_error_where_warnings_are_errors(tmp_path: Path):
    """It is said on standard error, and the program computes what it computed before."""
    settings = {"FUSE_CACHE_DIR": str(tmp_path), "FUSE_CACHE": "on", "FUSE_TIER": "compiled"}
    expected = run(CACHED, **settings)
    entries = [path for path in (tmp_path / "entries").rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        spoil(path)
    process = start(CACHED, "-W", "error", **settings)
    out, errors = finish(process)
    assert (process.returncode, out) == (0, expected), errors
    assert "CacheWarning: compilation cache, disk tier: an entry was rejected" in errors
