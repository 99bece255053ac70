"""``fuse doctor`` and the table of commands around it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from fuse.commands import cli, doctor
from fuse.commands.build import LIBRARIES
from fuse.native import build


def line(output: str, what: str) -> str:
    found = [text for text in output.splitlines() if text[5:].startswith(what)]
    assert len(found) == 1, output
    return found[0]


def test_everything_is_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUSE_CACHE_DIR", str(tmp_path / "deep" / "cache"))
    assert cli.main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert "BAD" not in output
    for what in ("python", "torch ", "jax ", "jaxlib", "numpy", "compiler", "native core"):
        assert line(output, what).startswith("ok   ")
    assert line(output, "device tpu:0").endswith("computes")
    assert "JAX" in line(output, "dispatch")
    assert str(tmp_path) in line(output, "cache folder")
    assert (tmp_path / "deep" / "cache").stat().st_mode & 0o777 == 0o700


def test_as_json_it_says_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (doctor.python, doctor.settings))
    monkeypatch.setenv("FUSE_MODE", "fast")
    assert doctor.main(["--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["in_order"] is False
    found = {finding["what"]: finding for finding in document["findings"]}
    assert found["python"]["ok"] and "use one of debug" in found["mode"]["hint"]


def test_another_project_of_that_name_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "fuse-3.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: fuse\nVersion: 3.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert all(finding.ok for finding in doctor.packages())
    (folder / "INSTALLER").write_text("pip\n")
    (bad,) = (finding for finding in doctor.packages() if not finding.ok)
    assert "fuse 3.1 is installed beside torch-fuse" in bad.value
    assert "pip uninstall fuse" in bad.hint


def test_no_compiler_is_needed_where_the_package_brings_the_builds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "no-such-c++")
    monkeypatch.setattr(build, "SHIPPED", tmp_path)
    for library in LIBRARIES.values():
        library.shipped().parent.mkdir()
        library.shipped().touch()
    (found,) = doctor.compiler()
    assert found.ok and "not needed" in found.value
    assert all(finding.ok for finding in doctor.native_libraries())


@pytest.mark.parametrize(
    ("variable", "value", "what", "text", "hint"),
    [
        ("FUSE_MODE", "fast", "mode", "'debug', 'strict', 'fused'", "use one of debug"),
        ("FUSE_BACKEND", "triton", "backend", "'xla'", "use one of xla"),
        ("FUSE_HOST_FALLBACK", "no", "host fallback", "'warn', 'error', 'silent'", "use one of"),
        ("FUSE_CACHE", "yes", "cache", "'on', 'off', 'read-only', 'only'", "use one of on"),
        ("CXX", "no-such-c++", "compiler", "no-such-c++ was not found", "install g++"),
        ("CXX", "false", "C++20", "false cannot compile it", "install g++"),
        ("FUSE_CACHE_DIR", "/dev/null/cache", "cache folder", "/dev/null", "set FUSE_CACHE"),
    ],
)
def test_what_is_not_in_order_is_named_with_its_hint(
    variable: str,
    value: str,
    what: str,
    text: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    checks = (doctor.compiler, doctor.settings, doctor.folders)
    monkeypatch.setattr(doctor, "CHECKS", checks)
    assert doctor.main([]) == 1
    findings = [finding for check in checks for finding in check() if not finding.ok]
    named = {finding.what: finding for finding in findings}
    assert text in named[what].value
    assert named[what].hint.startswith(hint)
    output = capsys.readouterr().out
    assert f"hint: {named[what].hint}" in output
    assert "something is not in order" in output


def test_a_missing_compiler_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "no-such-c++")
    monkeypatch.setattr(build, "SHIPPED", tmp_path)
    finding = doctor.native_libraries()[0]
    assert not finding.ok
    assert "'no-such-c++' was not found" in finding.value
    assert "apt-get install g++" in finding.hint


def test_a_folder_that_others_may_write_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("FUSE_CACHE_DIR", str(tmp_path))
    (finding,) = doctor.folders()
    assert not finding.ok
    assert "writable by others" in finding.value
    assert finding.hint == f"run: chmod go-w {tmp_path}"


@pytest.mark.parametrize(
    ("version", "bounds", "within"),
    [
        ("2.13.0+cpu", ">=2.11,<2.14", True),
        ("2.11", ">=2.11,<2.14", True),
        ("2.10.1", ">=2.11,<2.14", False),
        ("2.14.0", ">=2.11,<2.14", False),
        ("2.4.6", ">=2", True),
        ("10.0", ">=9", True),
        ("0.9.2", ">=0.10", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, bounds: str, within: bool) -> None:
    assert doctor._within(version, bounds) is within


def test_a_package_out_of_bounds_and_one_not_installed() -> None:
    old = doctor._package("numpy>=999")
    assert not old.ok
    assert old.value.endswith("wanted numpy>=999")
    absent = doctor._package("no-such-package>=1")
    assert (absent.value, absent.ok) == ("not installed", False)
    assert "-c constraints.txt" in absent.hint


def test_every_command_has_a_main() -> None:
    for module, _ in cli.COMMANDS.values():
        assert callable(importlib.import_module(module).main)


def test_an_unknown_command_lists_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["dance"])
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert "'dance'" in error
    for name in cli.COMMANDS:
        assert name in error


def test_a_missing_optional_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'tqdm'", name="tqdm")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert cli.main(["demo"]) == 1
    assert "pip install 'torch-fuse[demo]'" in capsys.readouterr().err


def test_an_interrupt_ends_a_command_like_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "main", interrupted)
    assert cli.main(["doctor"]) == 130
