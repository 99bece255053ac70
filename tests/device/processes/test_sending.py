"""Tensors of the device in ``multiprocessing``: an error, for the sender and for the receiver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.helpers import finish, start_file
from tests.marks import slow_but

TEXT = "a tensor on the tpu device cannot be sent to another process"

HEAD = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, torch.multiprocessing as mp
import multiprocessing
def told(call):
    try:
        call()
    except RuntimeError as error:
        assert "send tensor.cpu()" in str(error) or "spawn" in str(error), error
        print(type(error).__name__, str(error).splitlines()[0])
class Data(torch.utils.data.Dataset):
    def __init__(self, make): self.make = make
    def __len__(self): return 4
    def __getitem__(self, index): return self.make(index)
def on_device(index): return torch.full((2,), float(index), device="tpu")
class Holder:
    def __init__(self, tensor): self.tensor = tensor
def nothing(tensor): pass
def put(queue): queue.put({"x": [torch.ones(2, device="tpu")]}); queue.put("after")
"""

MAIN = """
if __name__ == "__main__":
    x = torch.ones(2, device="tpu")
    x.cpu()
"""

PROGRAMS = {
    "simple queue": "told(lambda: mp.SimpleQueue().put(x))",
    "pipe": "told(lambda: multiprocessing.Pipe()[0].send([x]))",
    "storage": "told(lambda: mp.SimpleQueue().put(x.untyped_storage()))",
    "parameter": "told(lambda: mp.SimpleQueue().put(torch.nn.Linear(2, 2).to('tpu')))",
    "argument of a process": (
        "told(mp.get_context('spawn').Process(target=nothing, args=(x,)).start)"
    ),
    "queue": "q = mp.Queue(); q.put((1, Holder(x))); told(q.get)",
    "plain queue": "q = multiprocessing.Queue(); q.put(x); told(q.get)",
    "queue of a spawned process": (
        "c = mp.get_context('spawn'); q = c.Queue(); p = c.Process(target=put, args=(q,)); "
        "p.start(); told(q.get); assert q.get() == 'after'; p.join(); assert p.exitcode == 0"
    ),
    "executor": (
        "from concurrent.futures import ProcessPoolExecutor as Executor; "
        "e = Executor(1, mp.get_context('spawn')); told(e.submit(nothing, x).result); "
        "assert e.submit(nothing, 1).result() is None; e.shutdown()"
    ),
}


def run_file(tmp_path: Path, program: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(HEAD + MAIN + f"    {program}\n")
    process = start_file(path)
    out, errors = finish(process)
    assert process.returncode == 0, errors
    return out


@pytest.mark.parametrize("name", slow_but(["queue", "storage", "argument of a process"], PROGRAMS))
def test_sending_is_an_error_and_nobody_waits(tmp_path: Path, name: str):
    assert run_file(tmp_path, PROGRAMS[name]) == f"FuseError {TEXT}.\n"


LOADERS = {
    "made in a forked worker": ("on_device", ""),
    "held by the parent": ("[x, x, x, x].__getitem__", ", batch_size=None"),
    "made in a spawned worker": ("on_device", ", multiprocessing_context='spawn'"),
    "sent to a spawned worker": ("[x, x, x, x].__getitem__", ", multiprocessing_context='spawn'"),
}


@pytest.mark.parametrize("name", slow_but(["made in a forked worker"], LOADERS))
def test_workers_of_a_loader_that_give_device_tensors(tmp_path: Path, name: str):
    make, options = LOADERS[name]
    loader = f"torch.utils.data.DataLoader(Data({make}), num_workers=1{options})"
    out = run_file(tmp_path, f"told(lambda: list({loader}))")
    assert out.startswith("FuseError ") and len(out.splitlines()) == 1


def test_tensors_of_the_cpu_travel_as_before(tmp_path: Path):
    program = (
        "q = mp.Queue(); q.put((x.cpu(), torch.nn.Parameter(torch.ones(1)), x.cpu().storage())); "
        "print(q.get()[:2])"
    )
    assert "tensor([1., 1.])" in run_file(tmp_path, program)
