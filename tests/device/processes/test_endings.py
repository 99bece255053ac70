"""The end of a process: what reads tensors then, and what is not finished."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cache.common import spoil
from tests.device.helpers import finish, run, start

ENDS = 60.0
"""Seconds from the last line of a program to its end, at the most: some of it is Python's own."""
SOON = 30.0
"""The same, where the work that is not to be waited for takes little more than a minute."""


def last_line(code: str, **environment: str) -> subprocess.Popen[str]:
    """The process once it has printed its last line."""
    process = start(f"{code}\nprint('last', flush=True)", **environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "last\n", process.communicate()
    return process


FINALISER = """
import sys, torch
class Late:
    def __init__(self, tensor): self.tensor = tensor
    def __del__(self): {use}
late = Late(torch.ones(3, device="tpu") * 2)
sys.modules["held to the end"] = late
(torch.ones(2, device="tpu") + 1).cpu()
"""


def test_a_finaliser_that_uses_a_tensor_in_the_interpreters_end_is_refused():
    for use in ("print(self.tensor.sum().item())", "self.tensor.add_(1)"):
        process = last_line(FINALISER.format(use=use))
        out, errors = finish(process, ENDS)
        assert process.returncode == 0 and out == ""
        assert "FuseError: the tpu device has stopped, for the process is ending." in errors
        assert "hint: read tensors before the interpreter is taken down" in errors


@pytest.mark.slow
def test_a_function_that_runs_at_exit_reads_tensors():
    code = (
        "import atexit\n"
        "atexit.register(lambda: print(x.tolist(), y.tolist()))\n"
        "import torch\n"
        "x = torch.ones(3, device='tpu') * 2; y = x + 1; torch.tpu.synchronize()"
    )
    assert run(code) == "[2.0, 2.0, 2.0] [3.0, 3.0, 3.0]\n"


COMPILING = """
import time, torch
from fuse.device import lazy
engine = lazy.engine()
def compile(chunk): time.sleep(600)
engine.backend.compile = compile
lazy.core().set_tier(1)  # recorded at once
x = torch.ones(40, 40, device="tpu")
for factor in range(3): ((x * factor).tanh() @ x).cpu()
time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_compiler_that_runs_is_not_waited_for():
    process = last_line(COMPILING, FUSE_TIER="auto", FUSE_CACHE="off")
    _, errors = finish(process, ENDS)
    assert process.returncode == 0 and "Fatal" not in errors and "terminate" not in errors, errors


RUNNING = """
import torch
from fuse.device import lazy
x = torch.ones(3000, 3000, device="tpu")
for _ in range(100): x = (x @ x) * 1e-3
lazy.core().cut("synchronize")
"""


@pytest.mark.slow
def test_chunks_that_run_are_not_waited_for():
    process = last_line(RUNNING)
    _, errors = finish(process, SOON)
    assert process.returncode == 0 and "Fatal" not in errors, errors


@pytest.mark.slow
def test_the_exit_status_is_the_programs_own_with_work_unfinished():
    process = start(f"{RUNNING}\nprint('flushed'); raise SystemExit(5)")
    assert finish(process)[0] == "flushed\n" and process.returncode == 5


DAMAGED = """
import torch, fuse
x = torch.ones(40, 40, device="tpu")
print(((x @ x).tanh() @ x).sum().item(), fuse.stats()["cache"]["disk"]["rejections"])
from fuse.device import lazy
assert lazy.engine().executables.cache.flush(60)
"""


@pytest.mark.slow
def test_a_damaged_cache_entry_is_a_miss_where_warnings_are_errors(tmp_path: Path):
    cache = {"FUSE_CACHE_DIR": str(tmp_path), "FUSE_TIER": "compiled"}
    assert run(DAMAGED, **cache) == "64000.0 {}\n"
    entries = list((tmp_path / "entries").iterdir())
    assert entries
    for path in entries:
        spoil(path)
    process = start(DAMAGED, "-W", "error", **cache)
    out, errors = finish(process)
    assert process.returncode == 0, errors
    assert out.startswith("64000.0 {'checksum': ")
    assert "CacheWarning: compilation cache, disk tier: an entry was rejected (checksum)" in errors
    assert "Traceback" not in errors
