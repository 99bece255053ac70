"""What one process compiled, no other compiles again: the device over real processes."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuse.cache import CacheSettings, Key, StoredTier, listing, open_cache
from fuse.device.core import CORE
from tests.engine.common import command, entries, finish, run, start
from tests.engine.worker import STEPS

RANKS = 4
NOTHING = {"compile": 0, "trace": 0, "plan": 0}


@pytest.fixture(scope="module", autouse=True)
def native_core() -> None:
    """Built before any worker starts, which would say on standard error that it builds it."""
    CORE.built()


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache that one process has filled, and what that process printed."""
    cache = tmp_path_factory.mktemp("cold") / "cache"
    record = cache.parent / "used"
    return cache, run("train", cache, FUSE_CACHE_RECORD=str(record))


@pytest.fixture
def copy(cold: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """That cache, to be damaged at will."""
    shutil.copytree(cold[0], tmp_path / "cache")
    return tmp_path / "cache"


def test_a_second_process_neither_traces_nor_compiles(
    cold: tuple[Path, dict[str, Any]], copy: Path
) -> None:
    first = cold[1]
    assert first["calls"]["compile"] == first["stats"]["compiles"] >= 2
    assert first["calls"]["trace"] > 10
    assert first["calls"]["plan"] >= 1
    second = run("train", copy)
    assert second["calls"] == NOTHING
    assert second["stats"]["compiles"] == 0
    assert second["result"] == first["result"]
    assert len(second["result"]) == STEPS
    disk = second["stats"]["cache"]["disk"]
    assert disk["misses"] == 0
    # Beside executables and plans: the verdicts on operations, and what this command used.
    assert disk["hits"] == first["stats"]["compiles"] + first["calls"]["plan"] + 2


@pytest.mark.slow
def test_a_second_process_calls_the_libraries_beside_xla(tmp_path: Path) -> None:
    """JAX prepares LAPACK where it traces a call of it, and here nothing is traced."""
    first = run("factorise", tmp_path / "cache")
    second = run("factorise", tmp_path / "cache", FUSE_CACHE="only")
    assert set(second["calls"].values()) == {0}
    assert second["result"] == first["result"]


@pytest.mark.slow
def test_a_bundle_gives_a_start_without_compiling(
    cold: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    cache, first = cold
    bundle, empty = tmp_path / "bundle.zip", tmp_path / "empty"
    exported = command(cache, "export", str(bundle), "--used", str(cache.parent / "used"))
    assert exported.returncode == 0, exported.stderr
    imported = command(empty, "import", str(bundle))
    assert imported.returncode == 0, imported.stderr
    found = run("train", empty, FUSE_CACHE="only")
    assert found["calls"] == NOTHING
    assert found["result"] == first["result"]


@pytest.mark.slow
def test_mode_only_raises_the_explained_miss_at_the_cut(tmp_path: Path) -> None:
    found = run("missing", tmp_path / "cache", FUSE_CACHE="only")
    assert found["result"]["at"] == "item"
    assert "a miss in the compilation cache, which is in mode 'only'" in found["result"]["text"]
    assert "nothing is stored to compare it with" in found["result"]["text"]
    assert "fuse cache import" in found["result"]["text"]
    assert "worker.py:" in found["result"]["label"]
    assert found["stats"]["compiles"] == 0
    assert entries(tmp_path / "cache") == []


@pytest.mark.slow
def test_mode_only_names_the_nearest_program_and_the_operation_that_differs(copy: Path) -> None:
    run("nearly", copy)
    found = run("missing", copy, FUSE_CACHE="only")
    assert "the nearest of" in found["result"]["text"]
    assert "program, line" in found["result"]["text"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["read-only", "off"])
def test_modes_that_write_nothing(mode: str, tmp_path: Path) -> None:
    found = run("nearly", tmp_path / "cache", FUSE_CACHE=mode)
    assert found["stats"]["compiles"] > 0
    assert entries(tmp_path / "cache") == []
    assert found["warnings"] == []


@pytest.mark.slow
def test_read_only_still_reads(cold: tuple[Path, dict[str, Any]], copy: Path) -> None:
    before = {path: path.read_bytes() for path in entries(copy)}
    found = run("train", copy, FUSE_CACHE="read-only")
    assert found["stats"]["compiles"] == 0
    assert {path: path.read_bytes() for path in entries(copy)} == before


DAMAGES = ("flip", "truncate", "swap", "zero", "foreign")


def damaged(kind: str, data: bytes, other: bytes, draw: random.Random) -> bytes:
    """The bytes of an entry after one of the things that happen to files."""
    changed, at = bytearray(data), draw.randrange(len(data))
    if kind == "flip":
        changed[at] ^= 1 << draw.randrange(8)
    elif kind == "truncate":
        del changed[at:]
    elif kind == "zero":
        changed[at // 2 : at // 2 + 4096] = bytes(len(changed[at // 2 : at // 2 + 4096]))
    return {"swap": other, "foreign": draw.randbytes(3000)}.get(kind, bytes(changed))


@pytest.mark.slow
@pytest.mark.parametrize("first_kind", [0, 2])
def test_damaged_entries_are_counted_and_compiled_again(
    first_kind: int, cold: tuple[Path, dict[str, Any]], copy: Path
) -> None:
    files, draw, first = entries(copy), random.Random(first_kind), cold[1]
    contents = [path.read_bytes() for path in files]
    for number, path in enumerate(files):
        kind = DAMAGES[(number + first_kind) % len(DAMAGES)]
        changed = damaged(kind, contents[number], contents[number - 1], draw)
        assert changed != contents[number]
        path.write_bytes(changed)
    found = run("train", copy)
    assert found["result"] == first["result"]
    assert found["calls"] == first["calls"]
    rejected = found["stats"]["cache"]["disk"]["rejections"]
    assert sum(rejected.values()) == len(files)
    assert len(found["warnings"]) == len(rejected)  # each kind once
    if first_kind:
        again = run("train", copy)
        assert again["calls"] == NOTHING
        assert again["result"] == first["result"]


def payload_of(tier: StoredTier, key: Key) -> bytes:
    entry = tier.read(key.digest)
    assert entry is not None
    return entry.payload


def stored_plans(tier: StoredTier) -> dict[Key, dict[str, Any]]:
    """Every stored plan as the document that it is."""
    keys = [one.header.key for one in listing(tier) if one.header is not None]
    plans = [key for key in keys if key.as_dict().get("kind") == "plan"]
    return {key: json.loads(payload_of(tier, key)) for key in plans}


@pytest.mark.slow
def test_a_plan_of_something_else_is_refused_and_made_again(
    cold: tuple[Path, dict[str, Any]], copy: Path
) -> None:
    tier = open_cache(CacheSettings(directory=copy)).tier("disk")
    sound, first = stored_plans(tier), cold[1]
    named = [piece["executable"] for plan in sound.values() for piece in plan["chunks"]]
    wrong: list[Callable[[dict[str, Any]], object]] = [
        # An executable of another chunk; one that nobody stored; an operation left out.
        lambda chunk: chunk.update(executable=next(n for n in named if n != chunk["executable"])),
        lambda chunk: chunk.update(executable=["0" * 64, "absent"]),
        lambda chunk: chunk["nodes"].pop(0),
    ]
    assert len(sound) == first["calls"]["plan"] >= 1
    for change in wrong:
        for key, plan in stored_plans(tier).items():
            for chunk in plan["chunks"]:
                change(chunk)
            tier.write(key, json.dumps(plan).encode())
        found = run("train", copy)
        assert found["calls"] == NOTHING | {"plan": len(sound)}
        assert found["result"] == first["result"]
        assert found["stats"]["cache"]["disk"]["rejections"] == {"load": len(sound)}
        assert len(found["warnings"]) == 1 and "chunk" in found["warnings"][0]
        assert stored_plans(tier) == sound


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    found = run("nearly", file / "cache")
    assert found["stats"]["compiles"] > 0
    assert sum(found["stats"]["cache"]["disk"]["failures"].values()) > 0
    assert len(found["warnings"]) == 1
    assert str(file) in found["warnings"][0]


@pytest.mark.slow
def test_ranks_compile_each_executable_once_between_them(
    cold: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    go, cache, first = tmp_path / "go", tmp_path / "cache", cold[1]
    ranks = [start("train", cache, START_FILE=str(go)) for _ in range(RANKS)]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"ready\n"
    go.touch()
    found = [finish(rank)[0] for rank in ranks]
    assert sum(one["calls"]["compile"] for one in found) == first["stats"]["compiles"]
    assert all(one["result"] == first["result"] for one in found)
    assert all(one["warnings"] == [] for one in found)


@pytest.mark.slow
def test_a_killed_holder_of_a_lease_holds_nobody_up(
    cold: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    cache, first = tmp_path / "cache", cold[1]
    holder = start("hold", cache)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"compiling\n"
    waiting = start("queue", cache)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == b"waiting\n"
    holder.kill()
    holder.communicate()
    found = finish(waiting)[0]
    assert found["result"] == first["result"]
    assert found["stats"]["compiles"] == first["stats"]["compiles"]
    assert found["stats"]["cache_events"]["lease-waits"] == 1


@pytest.mark.slow
def test_another_host_takes_everything_from_the_shared_tier(
    cold: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    first = cold[1]
    shared = {"FUSE_SHARED_CACHE": str(tmp_path / "shared"), "FUSE_CACHE_KEY": "k" * 32}
    run("train", tmp_path / "one", **shared)
    other = run("train", tmp_path / "two", **shared)
    assert other["result"] == first["result"]
    assert other["calls"]["trace"] == 0
    counts = other["stats"]["cache"]["shared"]
    # A compile may win the race against the shared tier on a busy machine; verdicts do not race.
    assert counts["hits"] + other["calls"]["compile"] >= first["stats"]["compiles"] + 1
    assert counts["hits"] >= 1
    assert counts["rejections"] == {}


@pytest.mark.slow
def test_another_key_rejects_every_shared_entry(
    cold: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    first, shared = cold[1], str(tmp_path / "shared")
    run("train", tmp_path / "one", FUSE_SHARED_CACHE=shared, FUSE_CACHE_KEY="k" * 32)
    other = run("train", tmp_path / "two", FUSE_SHARED_CACHE=shared, FUSE_CACHE_KEY="K" * 32)
    assert other["result"] == first["result"]
    assert other["stats"]["compiles"] == first["stats"]["compiles"]
    counts = other["stats"]["cache"]["shared"]
    assert counts["hits"] == 0
    assert counts["rejections"].keys() == {"signature"}
    assert len(other["warnings"]) == 1


def test_every_compile_is_explained_on_request(tmp_path: Path) -> None:
    _, errors = finish(start("nearly", tmp_path / "cache", FUSE_EXPLAIN="recompiles"))
    lines = errors.splitlines()
    compiled = [line for line in lines if line.startswith("fuse: compiled ")]
    assert len(compiled) == 2
    assert "nothing is stored to compare it with" in compiled[0]
    assert "worker.py:" in compiled[1]
    assert "the nearest of" in compiled[1]
    text = "\n".join(lines)
    assert "tanh" in text
    assert "sigmoid" in text
    assert "which is aten::sigmoid at " in text


@pytest.mark.slow
def test_explain_says_where_each_executable_came_from(tmp_path: Path) -> None:
    first, nearly = run("explain", tmp_path / "cache")["result"]
    assert ": compiled" in first
    assert "missed" in first
    assert "missed; the nearest of" in nearly
    assert "which is aten::sigmoid at " in nearly and "worker.py:" in nearly
    second, _ = run("explain", tmp_path / "cache")["result"]
    assert ": from disk" in second
    assert "missed" not in second
