"""Worker processes that compile for XLA's CPU platform: what they give, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from fuse.backends.base import Backend, Chunk, NotCompiled
from fuse.backends.data_checks import IndexCheck
from fuse.backends.functions import MARK
from fuse.backends.registry import get_backend
from fuse.backends.written_once import target_of
from fuse.backends.xla.cpu.workers import LOSSES, CpuWorkers
from fuse.engine.targeted import single
from fuse.trace.node import CHECK, Leaf, Node, Operand, Output, TensorArg
from fuse.trace.spec import Layout, View
from tests.engine.fakes import chunk, node
from tests.trace.drawing import Drawing

SECONDS = 120.0


CHUNK = single(Drawing("c = mul.Tensor(a, b)").trace.nodes[0])


@pytest.fixture(scope="module")
def backend() -> Backend:
    found = get_backend("xla")
    found.start()
    return found


@pytest.fixture(scope="module")
def workers(backend: Backend) -> Iterator[CpuWorkers]:
    """One set for the module."""
    made = CpuWorkers(backend)
    yield made
    made.close()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert true()


def is_gone(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"  # its new parent is slow
    except FileNotFoundError:
        return True


def test_a_chunk_that_a_worker_compiled_runs_and_equals(
    backend: Backend, workers: CpuWorkers
) -> None:
    one = CHUNK
    data = workers.compile(one)
    layouts = [leaf.layout for leaf in one.inputs]
    a, b = (
        np.linspace(0.1, at, layout.numel).reshape(layout.shape)
        for at, layout in enumerate(layouts, 1)
    )
    found = []
    for executable in (backend.load(data), backend.compile(one)):
        arrays = [backend.put(array.astype(np.float32), 0) for array in (a, b)]
        found += [backend.get(array) for array in backend.execute(executable, b"", arrays)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], a * b, rtol=1e-6)


def test_the_compilers_own_error_is_found_again_here(backend: Backend, workers: CpuWorkers) -> None:
    with pytest.raises(NotCompiled, match="AttributeError") as caught:
        workers.compile(chunk(node("no_such_operator")))
    assert (caught.value.reason, caught.value.lost) == ("refused by a worker", False)


def test_a_worker_with_other_surroundings_compiles_nothing(
    backend: Backend, workers: CpuWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = backend.fingerprint() | {"device count": "8"}
    monkeypatch.setattr(backend, "fingerprint", lambda: around)
    with pytest.raises(NotCompiled, match="a worker has another device count"):
        workers.compile(CHUNK)


def test_options_of_the_compiler_go_along(backend: Backend, workers: CpuWorkers) -> None:
    backend.compile_with({"xla_no_such_option": True})
    try:
        with pytest.raises(NotCompiled, match="xla_no_such_option"):
            workers.compile(CHUNK)
    finally:
        backend.compile_with({})
    assert workers.compile(CHUNK)


def test_a_lost_worker_is_said_and_the_next_chunk_has_another(
    backend: Backend, workers: CpuWorkers
) -> None:
    workers.compile(CHUNK)
    (process,) = workers.processes.alive
    os.kill(process.pid, signal.SIGSTOP)  # it cannot answer before it is killed
    raised: list[NotCompiled] = []

    def ask() -> None:
        try:
            workers.compile(CHUNK)
        except NotCompiled as error:
            raised.append(error)

    waiting = threading.Thread(target=ask)
    waiting.start()
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    waiting.join(SECONDS)
    (error,) = raised
    assert (error.reason, error.lost) == ("a worker ended", True) and "signal 9" in str(error)
    assert workers.refusal(CHUNK) == "" and workers.compile(CHUNK)


def test_one_that_cannot_start_is_said_and_none_is_started_again(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    lost = CpuWorkers(backend)
    with pytest.raises(NotCompiled, match="No such file") as caught:
        lost.compile(CHUNK)
    assert caught.value.lost and lost._lost >= LOSSES
    assert lost.refusal(CHUNK) == "workers were lost"


def test_what_cannot_be_pickled_stays_here_and_costs_no_worker(
    backend: Backend, workers: CpuWorkers
) -> None:
    odd = replace(node(), source=lambda: None)  # type: ignore[arg-type]
    with pytest.raises(NotCompiled) as caught:
        workers.compile(chunk(odd))
    assert (caught.value.reason, caught.value.lost) == ("not picklable", False)


def test_kernels_of_this_process_are_refused(workers: CpuWorkers) -> None:
    kernel = node("mylib::rope", target=f"mylib::rope{MARK}3f0c")
    assert workers.refusal(chunk(kernel)) == "a kernel that is this process's"


def test_checks_of_data_are_compiled_there(backend: Backend, workers: CpuWorkers) -> None:
    state, index = View("int64", (3,), (1,)), View("int64", (2,), (1,))
    check = Node(
        CHECK,
        target_of(CHECK, IndexCheck((5,), (0,))),
        (TensorArg(0), TensorArg(1), None),
        (
            Operand(0, state, Layout("int64", (3,)), 0),
            Operand(1, index, Layout("int64", (2,)), 1),
        ),
        (Output(2, state, Layout("int64", (3,))),),
        (),
        (0,),
    )
    leaves = tuple(Leaf(one.value, one.layout) for one in check.operands)
    checked = Chunk((check,), leaves, (2,), (), 0)
    assert workers.refusal(checked) == ""
    made = backend.load(workers.compile(checked))
    given = [np.zeros(3, np.int64), np.array([1, 5])]
    (found,) = backend.execute(made, b"", [backend.put(one, 0) for one in given])
    assert np.asarray(found).tolist() == [1, 1, 5]


def test_a_forked_child_has_no_workers(
    workers: CpuWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_process", os.getppid())
    assert workers.refusal(CHUNK) == "a forked process"


PARENT = """
import os, time
import fuse.backends.xla.cpu.workers as workers
workers.NICE = 0
process = workers._start()
if os.fork() == 0:
    time.sleep(600)  # it holds what its parent had open, but for what leads to the worker
print(process.pid, flush=True)
time.sleep(600)
"""


def test_a_worker_ends_with_the_program_however_that_ends() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True
    )
    assert program.stdout is not None
    try:
        with program.stdout:
            worker = int(program.stdout.readline())
        assert not is_gone(worker)
        program.kill()
        program.wait(SECONDS)
        until(lambda: is_gone(worker))
    finally:
        os.killpg(program.pid, signal.SIGKILL)
