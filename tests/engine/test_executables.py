"""Keys of executables, finding them from many threads, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest

from fuse.cache import CacheTrustError
from fuse.engine.executables import Executables, fits, key_of, secret, since
from fuse.errors import ConfigError, ExecutionError, VerifyError
from fuse.plan.plan import PlannedChunk
from fuse.trace.node import DtypeArg, HostArg, Leaf, NumberArg, Output, TensorArg, Write
from fuse.trace.signature import program_text
from fuse.trace.spec import Layout, View
from tests.engine.fakes import LAYOUT, VIEW, FakeBackend, chunk, node

THREADS = 8
PROGRAMS = 25


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FUSE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("FUSE_CACHE", "FUSE_SHARED_CACHE", "FUSE_CACHE_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path


def test_programs_that_differ_anywhere_have_different_texts() -> None:
    plain, operand, output = node(), node().operands[0], node().outputs[0]
    narrow, turned = Layout("float32", (3, 2)), View("float32", (2, 3), (1, 2))
    variants = [
        plain,
        node(op="sub.Scalar"),
        replace(plain, op="add_.Scalar"),
        replace(plain, args=(TensorArg(1), NumberArg(2.0, 1))),
        node(number=2),
        node(number=-0.0),
        node(number=0.0),
        replace(plain, args=(TensorArg(0), NumberArg(2.0, 2))),
        replace(plain, args=(TensorArg(0), HostArg("float32", 2.0, False, 1))),
        replace(plain, args=(TensorArg(0), HostArg("float32", 2.0, True, 1))),
        replace(plain, args=(TensorArg(0), HostArg("float64", 2.0, True, 1))),
        replace(plain, args=(TensorArg(0), HostArg("float32", 2.0, False, None))),
        replace(plain, args=(TensorArg(0), "float32")),
        replace(plain, args=(TensorArg(0), DtypeArg("float32"))),
        replace(plain, args=(TensorArg(0), (1, 2))),
        replace(plain, args=(TensorArg(0), 1, 2)),
        replace(plain, args=(TensorArg(0), None)),
        replace(plain, args=(TensorArg(0), "None")),
        replace(plain, operands=(replace(operand, value=7),)),
        replace(plain, operands=(replace(operand, view=turned),)),
        replace(plain, operands=(replace(operand, view=replace(VIEW, offset=1)),)),
        replace(plain, operands=(replace(operand, layout=narrow),)),
        replace(plain, operands=(replace(operand, place=3),)),
        replace(plain, operands=(replace(operand, fresh=True),)),
        replace(plain, operands=(replace(operand, initialised=False),)),
        replace(plain, operands=(operand, operand)),
        replace(plain, outputs=(replace(output, value=9),)),
        replace(plain, outputs=(replace(output, layout=narrow),)),
        replace(plain, outputs=(output, Output(2, VIEW, LAYOUT))),
        replace(plain, outputs=(), writes=(Write(0, 1, LAYOUT, VIEW),)),
        replace(plain, slots=(None,)),
        replace(plain, dynamic=((1, 0),)),
        replace(plain, random=0, blocks=1),
        replace(plain, random=0, blocks=2),
    ]
    texts = [program_text((one,)) for one in variants] + [program_text((plain, plain))]
    assert len(set(texts)) == len(texts)
    assert all(text.count("\n") == 0 for text in texts[:-1])
    assert program_text((replace(plain, source="other.py:1"),)) == program_text((plain,))


def test_chunks_that_differ_in_any_field_have_different_keys() -> None:
    plain, backend = chunk(), FakeBackend()
    leaf = plain.inputs[0]
    variants = [
        plain,
        replace(plain, nodes=(node(number=7.0),)),
        replace(plain, inputs=(replace(leaf, layout=Layout("float32", (3, 2))),)),
        replace(plain, inputs=(leaf, replace(leaf, value=5))),
        replace(plain, outputs=()),
        replace(plain, donated=(0,)),
        replace(plain, donated=(0,), apart=(0,)),
        replace(plain, scalars=plain.scalars + 1),
    ]
    assert {field.name for field in fields(plain)} == {
        *("nodes", "inputs", "outputs", "donated", "scalars", "apart")
    }, "a new field needs a variant here"
    assert len({key_of(backend, one).digest for one in variants}) == len(variants)
    backend.version = "2"
    assert key_of(backend, plain).digest != key_of(FakeBackend(), plain).digest
    named = set(key_of(backend, plain).as_dict())
    assert named >= {"torch", "format", "backend", "compiler", "program"}


def test_a_stored_plan_fits_its_executables_key_in_every_field() -> None:
    plain = chunk()
    key = key_of(FakeBackend(), plain)
    outputs = tuple(range(len(plain.outputs)))
    planned = PlannedChunk(
        plain.nodes, plain.inputs, outputs, plain.donated, tuple(range(plain.scalars))
    )
    fits(key, planned)
    for other in (
        replace(planned, inputs=(*planned.inputs, planned.inputs[0])),
        replace(planned, inputs=(Leaf(0, Layout("float32", (3, 2))),)),
        replace(planned, outputs=(*outputs, 9)),
        replace(planned, donated=(0,)),
        replace(planned, scalars=(*planned.scalars, 9)),
    ):
        with pytest.raises(VerifyError, match="a stored plan's chunk has"):
            fits(key, other)


def test_the_label_names_the_operations_and_the_first_users_line() -> None:
    backend = FakeBackend()
    backward = node(source="backward (MulBackward0)")
    assert key_of(backend, chunk()).label == "1 operation from train.py:7"
    assert key_of(backend, chunk(backward, node())).label == "2 operations from train.py:7"
    assert key_of(backend, chunk(backward)).label == "1 operation"


def test_many_threads_compile_each_program_once_and_count_it() -> None:
    backend, executables = FakeBackend(seconds=0.002), Executables()
    programs = [chunk(node(number=float(number))) for number in range(PROGRAMS)]

    def find(one: int) -> str:
        wanted = programs[one % PROGRAMS]
        found = executables.find(backend, wanted, key_of(backend, wanted))
        assert found.executable == {"text": str(wanted)}
        return found.origin

    with ThreadPoolExecutor(THREADS) as pool:
        origins = list(pool.map(find, [number for number in range(PROGRAMS) for _ in range(4)]))
    assert sorted(set(backend.compiled)) == sorted(str(one) for one in programs)
    assert executables.stats()["compiles"] == len(backend.compiled)
    assert executables.stats()["compile_seconds"] >= 0.002 * PROGRAMS
    assert origins.count("compiled") >= PROGRAMS
    assert set(origins) <= {"compiled", "memory", "disk"}
    assert executables.used() == list(dict.fromkeys(executables.used()))
    assert len(executables.used()) == PROGRAMS
    executables.cache.close()


def test_origins() -> None:
    backend, first = FakeBackend(), Executables()
    key = key_of(backend, chunk())
    assert first.find(backend, chunk(), key).origin == "compiled"
    assert first.find(backend, chunk(), key).origin == "memory"
    assert first.cache.flush(60)
    first.cache.close()
    found = Executables().find(backend, chunk(), key)
    assert found.origin == "disk"
    assert str(found) == f"executable {key.digest[:12]}, 1 operation from train.py:7: from disk"


def test_a_miss_is_explained_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend, executables = FakeBackend(), Executables()
    first, second = chunk(node(), node(number=3.0)), chunk(node(), node("mul.Scalar", 3.0))
    assert executables.find(backend, first, key_of(backend, first)).miss == ""
    monkeypatch.setenv("FUSE_EXPLAIN", "recompiles")
    miss = executables.find(backend, second, key_of(backend, second)).miss
    assert "differs in 1 of" in miss
    assert "program, line 2" in miss
    assert miss.endswith("which is aten::mul.Scalar at train.py:7")
    printed = capsys.readouterr().err
    assert printed.startswith("fuse: compiled 2 operations from train.py:7 in ")
    assert miss in printed
    backend.version = "2"
    other = executables.find(backend, second, key_of(backend, second)).miss
    assert "compiler: wanted '2', stored '1'" in other
    executables.cache.close()


def test_what_the_compiler_refuses_names_the_operations() -> None:
    backend, executables = FakeBackend(refused=frozenset({"add.Scalar"})), Executables()
    with pytest.raises(ExecutionError, match=r"compiling a chunk failed[\s\S]*train.py:7"):
        executables.find(backend, chunk(), key_of(backend, chunk()))
    assert executables.stats()["compiles"] == 0


def test_reset_counts_from_here() -> None:
    backend, executables = FakeBackend(), Executables()
    executables.find(backend, chunk(), key_of(backend, chunk()))
    assert executables.cache.flush(60)
    executables.reset_stats()
    stats = executables.stats()
    assert (stats["compiles"], stats["compile_seconds"]) == (0, 0.0)
    assert stats["cache"]["disk"]["puts"] == stats["cache"]["memory"]["misses"] == 0
    assert stats["cache"]["memory"]["entries"] == 1
    assert set(stats["cache_events"].values()) == {0}
    executables.find(backend, chunk(), key_of(backend, chunk()))
    assert executables.stats()["cache"]["memory"]["hits"] == 1
    executables.cache.close()


def test_since_subtracts_counts_and_keeps_what_counts_nothing() -> None:
    before = {"hits": 2, "entries": 5, "reasons": {"busy": 1}, "mode": "on"}
    now = {"hits": 6, "entries": 4, "reasons": {"busy": 3, "late": 2}, "mode": "on"}
    wanted = {"hits": 4, "entries": 4, "reasons": {"busy": 2, "late": 2}, "mode": "on"}
    assert since(now, before) == wanted


def test_the_secret_comes_from_the_variable_or_from_a_private_file(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert secret() is None
    file = settings / "key"
    file.write_text("a secret of some length\n")
    file.chmod(0o600)
    monkeypatch.setenv("FUSE_CACHE_KEY", "another")
    assert secret() == b"another"
    monkeypatch.setenv("FUSE_CACHE_KEY", f"file:{file}")
    assert secret() == b"a secret of some length"
    file.chmod(0o640)
    with pytest.raises(CacheTrustError, match="open to others"):
        secret()
    file.unlink()
    with pytest.raises(ConfigError, match="FUSE_CACHE_KEY's file cannot be read"):
        secret()
