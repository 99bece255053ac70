"""Builds a library of C++ once, on the machine that uses it.

The result is cached in a folder named after everything that it depends on: torch and
Python versions, compiler, and the sources themselves. A build happens in a private
folder and is renamed into place, so that processes that start together all end up with a
whole library and a killed build leaves nothing in the way of the next one.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from fuse import config
from fuse.errors import BuildError, describe

HEADERS = Path(__file__).parent / "include"
"""What the libraries share."""
SECONDS = 3600.0
"""The longest that building a library may take: a compiler that hangs is ended."""
FLAGS = ("-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


@dataclass(frozen=True, slots=True)
class Library:
    """C++ that is compiled where it is used, for the PyTorch that is there.

    Attributes:
        label: what messages call it.
        sources: the folder of its C++, which may have folders of its own.
        units: files of ``sources`` that are compiled, in parallel.
        links: libraries of PyTorch that it needs.
        packages: Python packages whose folder ``include`` it needs.
    """

    label: str
    sources: Path
    units: tuple[str, ...]
    links: tuple[str, ...]
    packages: tuple[str, ...] = ()

    def file(self) -> Path:
        """Where it is, or will be: the folder is named after all that the build depends on."""
        return config.build_dir() / self.digest() / "_core.so"

    def built(self) -> Path:
        """The shared library; builds it where there is none.

        Raises ``BuildError`` where no compiler is found, it fails, or it takes too long.
        """
        target = self.file()
        if target.exists():
            return target
        if shutil.which(config.compiler()) is None:
            raise BuildError(
                describe(
                    f"the tpu device needs a C++ compiler, and {config.compiler()!r} was not found",
                    remedy="install one (apt-get install g++), or name yours in CXX",
                )
            )
        return _build(self, target)

    def digest(self) -> str:
        """A name for the versions, the flags and the sources together."""
        digest = hashlib.sha256()
        parts = [torch.__version__, sys.version, config.compiler(), *FLAGS]
        parts += [sysconfig.get_platform(), *map(importlib.metadata.version, self.packages)]
        files = [path for folder in (self.sources, HEADERS) for path in folder.rglob("*.*")]
        for path in sorted(path for path in files if path.suffix in (".cpp", ".h")):
            parts += [path.name, path.read_text()]
        for part in parts:
            digest.update(f"{len(part)}:{part}".encode())
        return digest.hexdigest()[:24]


def load_module(name: str, library: Library) -> ModuleType:
    """The extension module that ``library`` is, built first where no build of it exists."""
    if name in sys.modules:
        return sys.modules[name]
    file = library.built()
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is None:
        raise BuildError(f"{file} is no extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def _build(library: Library, target: Path) -> Path:
    _private_folder(target.parent)
    with open(target.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the ranks of a group begin at the same moment
        if not target.exists():
            _build_alone(library, target)
    return target


def _build_alone(library: Library, target: Path) -> None:
    print(f"fuse: building {library.label}, once, about half a minute ...", file=sys.stderr)
    started = time.perf_counter()
    # In the target's own folder, so that the final rename stays within one file system.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
        os.replace(_compile(library, Path(folder)), target)
    seconds = time.perf_counter() - started
    print(f"fuse: built {library.label} in {seconds:.0f} s ({target})", file=sys.stderr)


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(
            describe(
                f"native code cannot be stored in {folder}: {error}",
                remedy="set FUSE_BUILD_DIR to a folder that you can write",
            )
        ) from error


def _compile(library: Library, folder: Path) -> Path:
    root = Path(torch.__file__).parent
    includes = [root / "include", root / "include/torch/csrc/api/include"]
    includes.append(Path(sysconfig.get_path("include")))
    includes += map(_headers_of, library.packages)
    common = [config.compiler(), *FLAGS, f"-I{library.sources}", f"-I{HEADERS}"]
    common += [f"-isystem{path}" for path in includes]
    deadline = time.monotonic() + SECONDS
    objects = {unit: folder / f"{Path(unit).stem}.o" for unit in library.units}
    jobs = [
        ([*common, "-c", str(library.sources / unit), "-o", str(made)], unit)
        for unit, made in objects.items()
    ]
    _run(library, jobs, deadline)
    made = folder / "_core.so"
    link = [config.compiler(), "-shared", *map(str, objects.values())]
    link += ["-o", str(made), f"-L{root / 'lib'}", *(f"-l{name}" for name in library.links)]
    _run(library, [(link, "linking")], deadline)
    return made


def _run(library: Library, jobs: list[tuple[list[str], str]], deadline: float) -> None:
    """Commands side by side, each with its name; raises ``BuildError`` for the first that fails."""
    # Groups of their own: a compiler is several processes, which killing the first does not end.
    running = [
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0)
        for line, _ in jobs
    ]
    try:
        for process, (line, unit) in zip(running, jobs, strict=True):
            try:
                output, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise _too_long(library, line, unit) from error
            _check(library, process.returncode, unit, output)
    finally:
        for process in running:
            if process.poll() is None:
                with suppress(ProcessLookupError):  # it has ended since
                    os.killpg(process.pid, signal.SIGKILL)
            with process:
                pass  # closes its pipe and reaps it, also where another unit failed first


def _too_long(library: Library, line: list[str], unit: str) -> BuildError:
    what = f"building {library.label} took more than {SECONDS} s"
    return BuildError(
        describe(
            f"{what}, in {unit}:\n  {shlex.join(line)}",
            remedy="build where less else runs, and set FUSE_BUILD_DIR to what was built there",
        )
    )


def _headers_of(package: str) -> Path:
    """Found without importing the package, which may take a second."""
    found = importlib.util.find_spec(package)
    folders = (found.submodule_search_locations if found is not None else None) or ()
    return Path(next(iter(folders), "")) / "include"


def _check(library: Library, code: int, unit: str, output: bytes) -> None:
    if code != 0:
        text = output.decode(errors="replace")
        errors = [line for line in text.splitlines() if "error" in line][:8] or text[-800:]
        raise BuildError(
            describe(
                f"building {library.label} failed in {unit}:\n{errors}",
                remedy=f"check that {config.compiler()} knows C++20 (g++ 11 or newer)",
            )
        )
