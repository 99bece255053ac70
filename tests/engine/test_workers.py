"""Compiling beside the program: what workers make, what they do not, and in which order."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, final

import pytest

from fuse.backends.base import Chunk, CompileWorkers, NotCompiled
from fuse.engine.compiler import BackgroundCompileWarning, Compiler
from fuse.engine.executables import Executables, Found
from fuse.engine.pool import Pool
from tests.engine.fakes import FakeBackend, chunk, node
from tests.engine.test_compiler import SECONDS, several, until, wanted_of


@final
class FakeWorkers(CompileWorkers):
    """Compile to a text of their own; or raise ``error``, at once or when they are closed."""

    def __init__(self, error: Exception | None = None, refusal: str = "") -> None:
        self.error, self._refusal = error, refusal
        self.hangs = False
        self.asked: list[Chunk] = []
        self.closed = threading.Event()

    def refusal(self, chunk: Chunk) -> str:
        return self._refusal

    def compile(self, chunk: Chunk) -> bytes:
        self.asked.append(chunk)
        if self.hangs:
            assert self.closed.wait(SECONDS)
            raise NotCompiled("the program ends", "killed")
        if self.error is not None:
            raise self.error
        return b'{"text": "of a worker"}'

    def close(self) -> None:
        self.closed.set()


class WithWorkers(FakeBackend):
    """Also counts executables that are serialised here."""

    def __init__(self, workers: FakeWorkers | None) -> None:
        super().__init__()
        self._workers, self.dumped = workers, 0

    def workers(self) -> CompileWorkers | None:
        assert self._workers is not None, "nothing is compiled in the background"
        return self._workers

    def dump(self, executable: Any) -> bytes | None:
        self.dumped += 1
        return super().dump(executable)


@pytest.fixture(params=["on", "off"])
def executables(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Iterator[Executables]:
    monkeypatch.setenv("FUSE_CACHE", request.param)
    monkeypatch.setenv("FUSE_CACHE_DIR", str(tmp_path))
    made = Executables()
    yield made
    made.cache.close()


def made(compiler: Compiler, backend: FakeBackend, *chunks: Chunk) -> list[Found]:
    found = compiler.find(backend, wanted_of(backend, *chunks))
    return [one.result(SECONDS) for one in found.values() if isinstance(one, Future)]


def test_what_a_worker_compiled_is_used_and_stored_as_it_came(executables: Executables) -> None:
    workers = FakeWorkers()
    backend = WithWorkers(workers)
    compiler = Compiler(executables, background=True)
    (found,) = made(compiler, backend, chunk())
    assert (found.executable, found.origin) == ({"text": "of a worker"}, "compiled")
    assert backend.compiled == [] and len(workers.asked) == 1
    assert (compiler.stats()["workers"], compiler.stats()["here"]) == (1, {})
    assert executables.cache.flush(SECONDS) and backend.dumped == 0
    if executables.cache.settings.mode == "on":
        again = Executables()
        (key,) = [key for _, key in wanted_of(backend, chunk()).values()]
        assert again.find(backend, chunk(), key).origin == "disk"
        again.cache.close()


@pytest.mark.parametrize("lost", [False, True])
def test_what_no_worker_compiles_is_compiled_here(executables: Executables, lost: bool) -> None:
    backend = WithWorkers(FakeWorkers(NotCompiled("a worker ended", "signal 9", lost)))
    compiler = Compiler(executables, background=True)
    (found,) = made(compiler, backend, chunk())
    assert found.executable == {"text": str(chunk())} and len(backend.compiled) == 1
    assert (compiler.stats()["workers"], compiler.stats()["here"]) == (0, {"a worker ended": 1})
    ready: Future[Found] = Future()
    ready.set_result(found)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert [compiler.ready(found.digest, ready) for _ in range(2)] == [found] * 2
    text = "it goes on in the program's process: a worker ended: signal 9"
    assert [text in str(one.message) for one in said] == [True] * lost
    assert all(one.category is BackgroundCompileWarning for one in said)


def test_a_chunk_that_workers_refuse_is_not_sent(executables: Executables) -> None:
    workers = FakeWorkers(refusal="a kernel that is this process's")
    backend = WithWorkers(workers)
    compiler = Compiler(executables, background=True)
    made(compiler, backend, chunk())
    assert workers.asked == [] and len(backend.compiled) == 1
    assert compiler.stats()["here"] == {"a kernel that is this process's": 1}


def test_bytes_that_cannot_be_loaded_are_compiled_here(executables: Executables) -> None:
    backend = WithWorkers(FakeWorkers())
    backend.load = lambda data: (_ for _ in ()).throw(ValueError("no"))  # type: ignore[method-assign]
    compiler = Compiler(executables, background=True)
    assert len(made(compiler, backend, chunk())) == len(backend.compiled) == 1
    assert compiler.stats()["here"] == {"not loadable": 1}


def test_what_is_waited_for_asks_no_worker(executables: Executables) -> None:
    backend = WithWorkers(None)
    compiler = Compiler(executables, background=False)
    compiler.find(backend, wanted_of(backend, *several(2)))
    assert len(backend.compiled) == 2


def test_at_the_end_workers_are_closed_and_nothing_is_compiled_here(
    executables: Executables,
) -> None:
    workers = FakeWorkers()
    workers.hangs = True
    backend = WithWorkers(workers)
    compiler = Compiler(executables, background=True)
    (future,) = compiler.find(backend, wanted_of(backend, chunk())).values()
    assert isinstance(future, Future)
    until(lambda: len(workers.asked) == 1)
    started = time.monotonic()
    compiler._pool.stop(0.1)
    assert future.exception(SECONDS) is not None and workers.closed.is_set()
    assert time.monotonic() - started < SECONDS and backend.compiled == []
    # Later, in the caller's thread, as before there were workers.
    other = chunk(node(number=7.0))
    assert [one.origin for one in made(compiler, backend, other)] == ["compiled"]
    assert len(backend.compiled) == 1


def test_the_largest_saving_is_made_first(executables: Executables) -> None:
    workers = FakeWorkers()
    backend = WithWorkers(workers)
    compiler = Compiler(executables, background=True)
    compiler._pool = Pool(1)
    gate = threading.Event()
    first = compiler._pool.submit(lambda: gate.wait(SECONDS), 1e9)  # type: ignore[arg-type,return-value]
    chunks = several(3)
    wanted = wanted_of(backend, *chunks)
    weights = dict(zip(wanted, (1.0, 3.0, 2.0), strict=True))
    held = [compiler.find(backend, wanted, weights)]
    longer = chunk(*(node(number=float(at)) for at in range(9)))
    held.append(compiler.find(backend, wanted_of(backend, longer, chunk(node(number=99.0)))))
    gate.set()
    for future in (one for found in held for one in found.values()):
        assert isinstance(future, Future) and future.result(SECONDS)
    assert first.done()
    expected = [chunks[1], chunks[2], chunks[0], longer, chunk(node(number=99.0))]
    assert workers.asked == expected
