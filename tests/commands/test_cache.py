"""The ``fuse cache`` command, in this process."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from fuse.cache import Key
from fuse.commands import cache as cache_cli
from fuse.commands.cli import main
from tests.cache.common import closed, filled, key_of, open_at, payload_of

KEYS = [key_of(f"k{number}") for number in range(3)]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FUSE_CACHE", "FUSE_SHARED_CACHE", "FUSE_CACHE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FUSE_CACHE_DIR", str(tmp_path / "cache"))
    filled(tmp_path / "cache", *KEYS)
    return tmp_path / "cache"


def stored(cache: Path) -> list[Path]:
    return sorted((cache / "entries").glob("*.fuse"))


def test_stats_and_list(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "stats"]) == 0
    printed = capsys.readouterr().out
    assert "mode    on" in printed
    size = cache_cli.human(sum(path.stat().st_size for path in stored(cache)))
    assert f"disk    3 entries, {size} of 4.0 GiB, in {cache}" in printed
    assert main(["cache", "list", "--fields"]) == 0
    printed = capsys.readouterr().out
    for key in KEYS:
        assert key.digest[:12] in printed
        assert f"program: program {key.label} (and 1 lines)" in printed


def test_what_others_wrote_does_not_reach_the_terminal_as_commands(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(cache, Key.of({"program": "\x1b[2J\x9b1m"}, "wiped\x1b[2J\u202eclean"))
    assert main(["cache", "list", "--fields"]) == 0
    printed = capsys.readouterr().out
    assert "wiped\\x1b[2J\\u202eclean" in printed
    assert "program: \\x1b[2J\\x9b1m" in printed
    assert not {"\x1b", "\x9b", "\u202e"} & set(printed)


def test_clear_and_prune(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = stored(cache)[0].stat().st_size
    assert main(["cache", "prune", "--max-bytes", str(size * 5 // 2)]) == 0
    assert len(stored(cache)) == 2
    assert main(["cache", "clear"]) == 0
    assert stored(cache) == []
    assert capsys.readouterr().out == "1 entries removed\n2 entries removed\n"


def test_verify_finds_damage(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "verify"]) == 0
    path = stored(cache)[1]
    path.write_bytes(path.read_bytes()[:-3])
    assert main(["cache", "list"]) == 0
    assert main(["cache", "verify"]) == 1
    printed = capsys.readouterr().out
    assert "3 entries are sound\n" in printed
    assert f"2 entries are sound\n{path.name[:12]}  rejected: truncated\n" in printed


def test_export_and_import(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = tmp_path / "used"
    absent = key_of("absent")
    record.write_text(f"{KEYS[1].digest} k1\n")
    bundle = tmp_path / "bundle.zip"
    assert main(["cache", "export", str(bundle), "--used", str(record)]) == 0
    monkeypatch.setenv("FUSE_CACHE_DIR", str(tmp_path / "other"))
    assert main(["cache", "import", str(bundle)]) == 0
    taken = open_at(tmp_path / "other")
    assert taken.get(KEYS[1], bytes) == payload_of(KEYS[1])
    assert taken.get(KEYS[0], bytes) is None
    closed(taken)
    capsys.readouterr()
    record.write_text(f"{absent.digest}\n")
    assert main(["cache", "export", str(bundle), "--used", str(record)]) == 1
    assert f"{absent.digest[:12]}  is in no tier" in capsys.readouterr().err


def test_what_goes_wrong_is_said_in_one_line_or_two(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    junk = tmp_path / "junk.zip"
    junk.write_bytes(b"junk")
    assert main(["cache", "import", str(junk)]) == 1
    assert "is no bundle" in capsys.readouterr().err
    assert main(["cache", "list", "--tier", "shared"]) == 1
    assert "has no tier 'shared'" in capsys.readouterr().err
    monkeypatch.setenv("FUSE_CACHE", "off")
    assert main(["cache", "stats"]) == 1
    assert "no stored tier" in capsys.readouterr().err
    monkeypatch.setenv("FUSE_CACHE", "maybe")
    assert main(["cache", "stats"]) == 1
    assert "'maybe'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["cache", "prune", "--max-bytes", "much"])
    assert ended.value.code == 2


def test_a_signed_bundle_needs_the_key(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = tmp_path / "bundle.zip"
    assert main(["cache", "export", str(bundle)]) == 0
    monkeypatch.setenv("FUSE_CACHE_KEY", "0123456789abcdef")
    monkeypatch.setenv("FUSE_CACHE_DIR", str(tmp_path / "other"))
    assert main(["cache", "import", str(bundle)]) == 1
    assert capsys.readouterr().err.count("rejected: unsigned") == len(KEYS)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("7", 7), ("2k", 2048), ("500M", 500 << 20), ("2GiB", 2 << 30), ("1tb", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert cache_cli.byte_count(text) == size


def test_sizes_for_people() -> None:
    assert [cache_cli.human(size) for size in (0, 1023, 1536, 5 << 20, 3 << 30, 2 << 40)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 MiB", "3.0 GiB", "2.0 TiB",
    ]  # fmt: skip
    with pytest.raises(argparse.ArgumentTypeError):
        cache_cli.byte_count("-1")
