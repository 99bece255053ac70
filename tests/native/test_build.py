"""Building the native core: no compiler, a broken one, a killed build, two at once."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from fuse.device.core import CORE
from fuse.errors import BuildError
from fuse.native import build
from tests.device.helpers import finish, start

USE = "import torch; print((torch.ones(2, device='tpu') + 1).tolist())"


def test_a_missing_compiler_says_what_to_install(tmp_path: Path):
    process = start(USE, CXX="/nonexistent/g++", FUSE_BUILD_DIR=str(tmp_path))
    _, errors = finish(process)
    assert process.returncode != 0
    assert "needs a C++ compiler" in errors and "'/nonexistent/g++'" in errors
    assert "apt-get install g++" in errors and "CXX" in errors
    assert not list(tmp_path.iterdir())


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'error: unknown flag' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("FUSE_BUILD_DIR", str(tmp_path / "build"))
    with pytest.raises(BuildError, match="unknown flag") as caught:
        CORE.built()
    assert "C++20" in str(caught.value)
    assert not list((tmp_path / "build").rglob("build-*"))


def test_a_compiler_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All of it: what it has started itself as well."""
    slow = tmp_path / "c++"
    slow.write_text(f"#!/bin/sh\nsleep 600 &\necho $! >> {tmp_path}/started\nwait\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    monkeypatch.setenv("FUSE_BUILD_DIR", str(tmp_path / "build"))
    monkeypatch.setattr(build, "SECONDS", 3)
    with pytest.raises(BuildError, match="took more than 3 s") as caught:
        CORE.built()
    text = str(caught.value)
    assert "in runtime:" in text and f"{slow} -std=c++20" in text
    assert "hint: build where less else runs" in text
    assert not list((tmp_path / "build").rglob("build-*"))
    # The bound may pass before every unit's compiler has come so far.
    left = [int(number) for number in (tmp_path / "started").read_text().split()]
    assert 0 < len(left) <= len(CORE.units)
    deadline = time.monotonic() + 60
    while any(map(is_alive, left)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, left))


def is_alive(process: int) -> bool:
    """Whether it runs; one that nobody has asked how it ended does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUSE_BUILD_DIR", str(tmp_path / "file" / "inside"))
    with pytest.raises(BuildError, match="FUSE_BUILD_DIR"):
        CORE.built()


def test_a_build_that_exists_is_not_built_again(monkeypatch: pytest.MonkeyPatch):
    library = CORE.built()
    monkeypatch.setattr(build, "_compile", None)
    assert CORE.built() == library


def test_what_a_build_depends_on_is_in_its_folders_name(monkeypatch: pytest.MonkeyPatch):
    before = CORE.digest()
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DOTHER"))
    assert CORE.digest() != before
    monkeypatch.undo()
    monkeypatch.setenv("CXX", "clang++")
    assert CORE.digest() != before


def test_a_build_that_the_package_brings_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it fits PyTorch and Python; another one is built, in a sentence."""
    built = CORE.built()
    monkeypatch.setattr(build, "SHIPPED", tmp_path)
    CORE.shipped().parent.mkdir()
    shutil.copyfile(built, CORE.shipped())
    monkeypatch.setattr(build, "_compile", None)
    assert CORE.built() == CORE.shipped() == CORE.file()
    before = CORE.shipped()
    monkeypatch.setattr(torch, "__version__", torch.__version__.partition("+")[0] + "+cu999")
    assert CORE.built() == before  # of one ABI
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert CORE.shipped() != before


def test_a_build_that_does_not_load_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the package brings may have been made for a PyTorch of another ABI."""
    built = CORE.built()
    monkeypatch.setattr(build, "SHIPPED", tmp_path)
    CORE.shipped().parent.mkdir()
    CORE.shipped().write_bytes(b"no library")
    assert CORE.load(lambda file: ctypes.CDLL(str(file)) and file) == built
    said = capsys.readouterr().err
    assert "the native core of the wheel does not load: " in said and "file too short" in said


def test_no_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSE_BUILD_DIR", str(tmp_path))

    def full(library: build.Library, folder: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    monkeypatch.setattr(build, "_compile", full)
    with pytest.raises(BuildError, match=r"No space left(.|\n)*hint: make room there, or set FUSE"):
        CORE.built()


@pytest.mark.slow
def test_killed_and_simultaneous_builds(tmp_path: Path):
    """A build is killed; then two processes start together and both end up working."""
    killed = start(USE, FUSE_BUILD_DIR=str(tmp_path))
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("build-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    os.kill(killed.pid, signal.SIGKILL)
    finish(killed)
    assert not list(tmp_path.rglob("_core.so"))
    both = [start(USE, FUSE_BUILD_DIR=str(tmp_path)) for _ in range(2)]
    said = ""
    for process in both:
        out, errors = finish(process, 600)
        assert process.returncode == 0, errors
        assert out == "[2.0, 2.0]\n"
        said += errors
    assert said.count("building the native core") == 1  # the other one waits for it
    again = start(USE, FUSE_BUILD_DIR=str(tmp_path))
    out, errors = finish(again)
    assert out == "[2.0, 2.0]\n" and "building" not in errors
