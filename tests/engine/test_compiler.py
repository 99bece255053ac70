"""Finding a plan's chunks: in parallel and waiting, or in the background; what is said of it."""

from __future__ import annotations

import gc
import io
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

import pytest

from fuse import config
from fuse.backends.base import Chunk
from fuse.cache.key import Key
from fuse.engine.compiler import BackgroundCompileWarning, Compiler
from fuse.engine.executables import Executables, Found, key_of
from fuse.engine.pool import Pool, cores, finish
from fuse.engine.progress import PATIENCE, Progress
from fuse.errors import ConfigError, ExecutionError
from tests.engine.fakes import FakeBackend, chunk, node

SECONDS = 60.0


@pytest.fixture
def executables(monkeypatch: pytest.MonkeyPatch) -> Iterator[Executables]:
    monkeypatch.setenv("FUSE_CACHE", "off")
    made = Executables()
    yield made
    made.cache.close()


class Gated(FakeBackend):
    """Compiles only once the gate is open, and knows how many compile at one time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.gate = threading.Event()
        self.together = threading.Barrier(2)
        self.meet = False

    def compile(self, chunk: Chunk) -> Any:
        if self.meet:
            self.together.wait(SECONDS)
        assert self.gate.wait(SECONDS)
        return super().compile(chunk)


def until(true: Callable[[], bool]) -> None:
    """Wait for it; a background thread is told last that its work is done."""
    deadline = time.monotonic() + SECONDS
    while not true() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert true()


def wanted_of(backend: FakeBackend, *chunks: Chunk) -> dict[str, tuple[Chunk, Key]]:
    keys = [key_of(backend, one) for one in chunks]
    return {key.digest: (one, key) for key, one in zip(keys, chunks, strict=True)}


def several(count: int) -> list[Chunk]:
    return [chunk(node(number=float(number))) for number in range(count)]


@pytest.mark.skipif(cores() < 2, reason="compiles are as parallel as there are cores")
def test_chunks_of_one_plan_compile_in_parallel(executables: Executables) -> None:
    backend = Gated()
    backend.meet = True  # each waits until another compiles beside it
    backend.gate.set()
    found = Compiler(executables, background=False).find(backend, wanted_of(backend, *several(4)))
    assert [one.origin for one in found.values() if isinstance(one, Found)] == ["compiled"] * 4
    assert executables.stats()["compiles"] == 4


def test_waiting_raises_what_the_compiler_says(executables: Executables) -> None:
    backend = FakeBackend(refused=frozenset({"add.Scalar"}))
    compiler = Compiler(executables, background=False)
    for count in (1, 3):
        with pytest.raises(ExecutionError, match="the compiler gives up"):
            compiler.find(backend, wanted_of(backend, *several(count)))


def test_in_the_background_futures_come_first(executables: Executables) -> None:
    backend = Gated()
    compiler = Compiler(executables, background=True)
    wanted = wanted_of(backend, *several(2))
    first, again = compiler.find(backend, wanted), compiler.find(backend, wanted)
    assert first == again and all(isinstance(one, Future) for one in first.values())
    nothing = {"compiled": 0, "failed": 0, "uncompiled_chunks": 0, "workers": 0, "here": {}}
    assert compiler.stats() == {"pending": 2} | nothing
    pending = {digest: one for digest, one in first.items() if isinstance(one, Future)}
    assert [compiler.ready(*item) for item in pending.items()] == [None, None]
    backend.gate.set()
    for future in pending.values():
        future.result(SECONDS)
    found = [compiler.ready(*item) for item in pending.items()]
    assert [one is not None and one.origin for one in found] == ["compiled", "compiled"]
    assert compiler.stats()["compiled"] == 2 and len(backend.compiled) == 2
    later = compiler.find(backend, wanted)
    assert [one.origin for one in later.values() if isinstance(one, Found)] == ["memory"] * 2


def test_a_failure_in_the_background_warns_once(executables: Executables) -> None:
    backend = FakeBackend(refused=frozenset({"add.Scalar"}))
    compiler = Compiler(executables, background=True)
    (digest, future), *_ = compiler.find(backend, wanted_of(backend, chunk())).items()
    assert isinstance(future, Future)
    assert isinstance(future.exception(SECONDS), ExecutionError)
    with pytest.warns(BackgroundCompileWarning, match=r"goes on uncompiled[\s\S]*train.py:7"):
        assert compiler.ready(digest, future) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiler.ready(digest, future) is None
    assert compiler.stats()["failed"] == 1


def test_what_no_plan_holds_any_more_is_freed(executables: Executables) -> None:
    backend = FakeBackend()
    compiler = Compiler(executables, background=True)
    found = compiler.find(backend, wanted_of(backend, *several(3)))
    wait([one for one in found.values() if isinstance(one, Future)], SECONDS)
    held = [weakref.ref(one) for one in found.values()]
    assert len(held) == 3 and all(one() is not None for one in held)
    del found
    until(lambda: compiler.stats()["pending"] == 0)
    gc.collect()
    assert [one() for one in held] == [None] * 3
    assert compiler.stats()["compiled"] == 3


def test_what_no_plan_waits_for_any_more_is_not_compiled(executables: Executables) -> None:
    backend = Gated()
    compiler = Compiler(executables, background=True)
    wanted = wanted_of(backend, *several(cores() + 3))
    found = compiler.find(backend, wanted)
    last = next(reversed(wanted))
    future = found[last]
    del found
    until(lambda: compiler.stats()["pending"] <= cores() + 1)  # those that run, and the last
    backend.gate.set()
    assert isinstance(future, Future)
    assert future.result(SECONDS).digest == last
    until(lambda: compiler.stats()["pending"] == 0)
    assert len(backend.compiled) <= max(1, cores() - 1) + 1


def test_failures_that_were_said_long_ago_are_forgotten(
    executables: Executables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuse.engine.compiler.MOST_REPORTED", 2)
    compiler = Compiler(executables, background=True)
    failed: Future[Found] = Future()
    failed.set_exception(ValueError("no such instruction"))
    for digest, count in (("a", 1), ("b", 2), ("a", 2), ("c", 3), ("a", 4)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert compiler.ready(digest, failed) is None
        assert compiler.stats()["failed"] == count


def test_what_can_only_run_compiled_is_waited_for(executables: Executables) -> None:
    backend = FakeBackend()
    odd = node("_no_such_operator", target="_fused_adam", blocks=0)
    compiler = Compiler(executables, background=True)
    compiler._uncompiled.refusal = lambda chunk: "no kernel"  # type: ignore[method-assign]
    (found,) = compiler.find(backend, wanted_of(backend, chunk(odd))).values()
    assert isinstance(found, Found) and found.origin == "compiled"


# ---- the pool -------------------------------------------------------------------------------


def test_a_stopped_pool_drops_what_waits_and_runs_in_the_caller() -> None:
    pool: Pool[str] = Pool(1)
    started, gate = threading.Event(), threading.Event()

    def held() -> str:
        started.set()
        assert gate.wait(SECONDS)
        return threading.current_thread().name

    running, waiting = pool.submit(held), pool.submit(held)
    assert started.wait(SECONDS) and pool.pending() == 2
    assert not pool.stop(0.01)  # bounded, although a job still runs
    assert waiting.cancelled() and not running.done()
    gate.set()
    assert running.result(SECONDS) == "fuse-compile"
    assert pool.stop(SECONDS) and pool.pending() == 0
    assert pool.submit(held).result(0) == threading.current_thread().name


def test_what_is_waited_for_goes_before_what_is_queued() -> None:
    pool: Pool[str] = Pool(1)
    started, gate = threading.Event(), threading.Event()

    def held() -> str:
        started.set()
        assert gate.wait(SECONDS)
        return threading.current_thread().name

    running = pool.submit(held)
    assert started.wait(SECONDS)
    queued = [pool.submit(lambda: threading.current_thread().name) for _ in range(3)]
    finish(queued[-1])  # the pool's only thread is held
    assert queued[-1].result(0) == threading.current_thread().name
    assert not queued[0].done()
    gate.set()
    finish(running)
    assert running.result(0) == "fuse-compile"
    assert [job.result(SECONDS) for job in queued[:-1]] == ["fuse-compile"] * 2
    until(lambda: pool.pending() == 0)


# ---- the progress line ----------------------------------------------------------------------


class Screen(io.StringIO):
    """A stream that may be a terminal, and says when something was written to it."""

    def __init__(self, terminal: bool, lines: int = 1) -> None:
        super().__init__()
        self._terminal, self._left = terminal, lines
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        self._left -= 1
        if self._left <= 0:
            self.written.set()
        return written


def test_a_file_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=False)
    monkeypatch.setattr("sys.stderr", screen)
    with Progress(3, after=0.0) as progress:
        progress.started("9 operations from net.py:4")
        assert screen.written.wait(SECONDS)
        progress.finished("9 operations from net.py:4")
    text = screen.getvalue()
    assert text.count("\n") == 1 and text.endswith("\n") and "\r" not in text
    assert text.startswith("fuse: compiling, ") and " of 3 chunks done after " in text


def test_a_terminal_gets_a_line_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuse.engine.progress.REFRESH", 0.001)
    screen = Screen(terminal=True, lines=5)
    monkeypatch.setattr("sys.stderr", screen)
    with Progress(2, after=0.0) as progress:
        progress.started("a")
        progress.started("b")
        assert ": a and 1 more" in progress.line()
        assert screen.written.wait(SECONDS)
        progress.finished("a")
        progress.finished("b")
    text = screen.getvalue()
    assert text.endswith("\n") and text.count("\n") == 1 and text.count("\r") >= 5
    assert "2 of 2 chunks done" in text.rpartition("\r")[2]


def test_a_short_wait_says_nothing(
    executables: Executables, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeBackend()
    # Many times what is short for a user: the processor may be somebody else's for a while.
    much = 30 * PATIENCE
    monkeypatch.setattr("fuse.engine.compiler.Progress", lambda total: Progress(total, after=much))
    Compiler(executables, background=False).find(backend, wanted_of(backend, *several(3)))
    assert capsys.readouterr().err == ""


def test_a_long_compile_is_told(executables: Executables, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, backend = Screen(terminal=False), Gated()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("fuse.engine.compiler.Progress", lambda total: Progress(total, after=0.0))
    threading.Thread(target=lambda: (screen.written.wait(SECONDS), backend.gate.set())).start()
    Compiler(executables, background=False).find(backend, wanted_of(backend, chunk()))
    assert "0 of 1 chunks done" in screen.getvalue()


def test_the_setting_of_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSE_TIER", raising=False)
    assert config.tier() == "auto"
    for name in ("compiled", "uncompiled"):
        monkeypatch.setenv("FUSE_TIER", name)
        assert config.tier() == name
    monkeypatch.setenv("FUSE_TIER", "later")
    with pytest.raises(ConfigError, match="'auto', 'compiled', 'uncompiled'"):
        config.tier()


def test_settings_of_before_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSE_TIER", raising=False)
    monkeypatch.setenv("FUSE_COMPILE", "wait")
    config.warn_of_old_names.cache_clear()
    with pytest.warns(FutureWarning, match="FUSE_COMPILE is no setting any more: FUSE_TIER=comp"):
        assert config.tier() == "compiled"
    assert config.tier() == "compiled"  # warned about by now
    monkeypatch.setenv("FUSE_COMPILE", "background")
    assert config.tier() == "auto"
