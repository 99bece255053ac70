"""Libraries of C++: those that a wheel brings, else built once, on the machine that uses them.

The result is cached in a folder named after everything that it depends on: torch and
Python versions, compiler, and the sources themselves. A build happens in a private
folder and is renamed into place, so that processes that start together all end up with a
whole library and a killed build leaves nothing in the way of the next one.
"""

from __future__ import annotations

import fcntl
import functools
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, TypeVar

import torch

from fuse import config
from fuse.errors import BuildError, describe

HEADERS = Path(__file__).parent / "include"
"""What the libraries share."""
SHIPPED = Path(__file__).parent / "shipped"
"""Builds that a wheel brings (``make wheel``), each in a folder named after what it fits."""
SECONDS = 3600.0
"""The longest that building a library may take: a compiler that hangs is ended."""
ROOM = "make room there, or set FUSE_BUILD_DIR to a folder with some 100 MB"
T = TypeVar("T")
FLAGS = (
    *("-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"),
    # As PyTorch itself is built: square roots are vectorised, and the same numbers come out where
    # the processor multiplies and adds in one.
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"),
)


@dataclass(frozen=True, slots=True)
class Library:
    """C++ that is compiled where it is used, for the PyTorch that is there.

    Attributes:
        label: what messages call it.
        sources: the folder of its C++, which may have folders of its own.
        units: what is compiled by itself, in parallel: files of ``sources``, and folders, whose
            files are compiled as one (PyTorch's headers are most of the time that a file takes)
            but for those that are units themselves.
        links: libraries of PyTorch that it needs.
        packages: Python packages whose folder ``include`` it needs.
        interface: the version of what it needs of them, where a build may serve several of theirs.
    """

    label: str
    sources: Path
    units: tuple[str, ...]
    links: tuple[str, ...]
    packages: tuple[str, ...] = ()
    interface: str = ""

    def file(self) -> Path:
        """Where it is, or will be: the folder is named after all that the build depends on."""
        shipped = self.shipped()
        return shipped if shipped.exists() else config.build_dir() / self.digest() / "_core.so"

    def shipped(self) -> Path:
        """Where it is if the installed package brings a build for this PyTorch and Python."""
        return SHIPPED / self.fit() / "_core.so"

    def built(self) -> Path:
        """The shared library; builds it where there is none.

        Raises ``BuildError`` where no compiler is found, it fails, or it takes too long.
        """
        shipped = self.shipped()
        return shipped if shipped.exists() else self._built_here()

    def load(self, how: Callable[[Path], T]) -> T:
        """What ``how`` makes of the shared library; builds it where there is none that loads.

        Raises ``BuildError`` as ``built`` does, and what ``how`` raises.
        """
        try:
            return how(self.built())
        except (ImportError, OSError) as error:
            if not self.shipped().exists():
                raise
            said = str(error).partition("\n")[0]
            print(f"fuse: {self.label} of the wheel does not load: {said}", file=sys.stderr)
        return how(self._built_here())

    def _built_here(self) -> Path:
        target = config.build_dir() / self.digest() / "_core.so"
        if target.exists():
            return target
        if shutil.which(config.compiler()) is None:
            raise BuildError(
                describe(
                    f"the tpu device needs a C++ compiler, and {config.compiler()!r} was not found",
                    hint="install one (apt-get install g++), name yours in CXX, or install a wheel "
                    f"that was made for PyTorch {torch.__version__.partition('+')[0]}",
                )
            )
        return _build(self, target)

    def digest(self) -> str:
        """A name for the versions, the flags and the sources together."""
        versions = map(importlib.metadata.version, self.packages)
        return self._named([torch.__version__, sys.version, config.compiler(), *FLAGS, *versions])

    def fit(self) -> str:
        """A name for the sources and what can load their build: PyTorch and Python of one ABI.

        PyTorch's builds for CPUs and for GPUs have one ABI for what is no kernel.
        """
        torch_version = torch.__version__.partition("+")[0]
        return self._named([torch_version, str(sysconfig.get_config_var("SOABI")), self.interface])

    def _named(self, versions: list[str]) -> str:
        parts = [sysconfig.get_platform(), *versions, *self.units, _sources(self.sources)]
        return _hash(parts)[:24]


@functools.cache
def _sources(folder: Path) -> str:
    """A hash of a folder's C++ and what all share; read once a process, which takes some 8 ms."""
    parts: list[str] = []
    for one in (folder, HEADERS):
        for path in sorted(path for path in one.rglob("*.*") if path.suffix in (".cpp", ".h")):
            parts += [str(path.relative_to(one)), path.read_text()]
    return _hash(parts)


def _hash(parts: list[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def load_module(name: str, library: Library) -> ModuleType:
    """The extension module that ``library`` is, built first where no build of it exists."""
    if name in sys.modules:
        return sys.modules[name]
    module = library.load(lambda file: _load(name, file))
    sys.modules[name] = module
    return module


def _load(name: str, file: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is None:
        raise BuildError(f"{file} is no extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _build(library: Library, target: Path) -> Path:
    _private_folder(target.parent)
    with open(target.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the ranks of a group begin at the same moment
        if not target.exists():
            _build_alone(library, target)
    return target


def _build_alone(library: Library, target: Path) -> None:
    other = f"what the wheel brings is for another PyTorch than {torch.__version__}: "
    why = other if SHIPPED.exists() and not library.shipped().exists() else ""
    what = f"building {library.label}, once, about half a minute ..."
    print(f"fuse: {why}{what}", file=sys.stderr)
    started = time.perf_counter()
    # In the target's own folder, so that the final rename stays within one file system. Others in
    # there are left of builds that were killed: whoever builds holds the lock.
    for left in target.parent.glob("build-*"):
        shutil.rmtree(left, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
            os.replace(_compile(library, Path(folder)), target)
    except OSError as error:
        what = f"building {library.label} in {target.parent} failed: {error}"
        raise BuildError(describe(what, hint=ROOM)) from error
    seconds = time.perf_counter() - started
    print(f"fuse: built {library.label} in {seconds:.0f} s ({target})", file=sys.stderr)


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(
            describe(
                f"native code cannot be stored in {folder}: {error}",
                hint="set FUSE_BUILD_DIR to a folder that you can write",
            )
        ) from error


def system_headers(packages: tuple[str, ...]) -> list[str]:
    """The flags that find the headers of PyTorch, of Python, and of these packages."""
    root = Path(torch.__file__).parent / "include"
    folders = [root, root / "torch/csrc/api/include", root / "kineto"]
    folders += [Path(sysconfig.get_path("include")), *map(headers_of, packages)]
    return [f"-isystem{path}" for path in folders]


def _compile(library: Library, folder: Path) -> Path:
    libraries = Path(torch.__file__).parent / "lib"
    common = [config.compiler(), *FLAGS, f"-I{library.sources}", f"-I{HEADERS}"]
    common += system_headers(library.packages)
    deadline = time.monotonic() + SECONDS
    objects = [folder / f"{number}.o" for number in range(len(library.units))]
    jobs = [
        ([*common, "-c", str(source_of(library, unit, folder)), "-o", str(made)], unit)
        for unit, made in zip(library.units, objects, strict=True)
    ]
    _run(library, jobs, deadline)
    made = folder / "_core.so"
    link = [config.compiler(), "-shared", *map(str, objects)]
    link += ["-o", str(made), f"-L{libraries}", *(f"-l{name}" for name in library.links)]
    _run(library, [(link, "linking")], deadline)
    return made


def source_of(library: Library, unit: str, folder: Path) -> Path:
    """The file to compile for a unit of ``library``: a folder's is written to ``folder``."""
    given = library.sources / unit
    if given.is_file():
        return given
    files = sorted(str(path.relative_to(library.sources)) for path in given.glob("*.cpp"))
    made = folder / f"{unit.replace('/', '_')}.cpp"
    lines = (f'#include "{file}" // NOLINT\n' for file in files if file not in library.units)
    made.write_text("".join(lines))
    return made


@dataclass(frozen=True, slots=True)
class _Job:
    """A compiler at work on a unit; what it says goes to a file, which no pipe's size bounds."""

    unit: str
    line: list[str]
    process: subprocess.Popen[bytes]
    output: IO[bytes]

    @staticmethod
    def start(unit: str, line: list[str]) -> _Job:
        output = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        # A group of its own: a compiler is several processes; killing the first ends not all.
        process = subprocess.Popen(line, stdout=output, stderr=subprocess.STDOUT, process_group=0)
        return _Job(unit, line, process, output)

    def end(self) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.output.close()


def _run(library: Library, lines: list[tuple[list[str], str]], deadline: float) -> None:
    """Commands side by side, each with its name, as many as there are processors.

    Raises ``BuildError`` for the first that fails; the others are ended.
    """
    waiting, running = list(reversed(lines)), list[_Job]()
    try:
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                line, unit = waiting.pop()
                running.append(_Job.start(unit, line))
            ended = [job for job in running if job.process.poll() is not None]
            for job in ended:
                _check(library, job)
                running.remove(job)
                job.end()
            if not ended:
                if time.monotonic() > deadline:
                    raise _too_long(library, running[0])
                time.sleep(0.02)
    finally:
        for job in running:
            job.end()


def _too_long(library: Library, job: _Job) -> BuildError:
    what = f"building {library.label} took more than {SECONDS} s"
    return BuildError(
        describe(
            f"{what}, in {job.unit}:\n  {shlex.join(job.line)}",
            hint="build where less else runs, and set FUSE_BUILD_DIR to what was built there",
        )
    )


def headers_of(package: str) -> Path:
    """A package's C++ headers, found without importing it, which may take a second."""
    found = importlib.util.find_spec(package)
    folders = (found.submodule_search_locations if found is not None else None) or ()
    return Path(next(iter(folders), "")) / "include"


def _check(library: Library, job: _Job) -> None:
    if job.process.returncode != 0:
        job.output.seek(0)
        text = job.output.read().decode(errors="replace")
        errors = [line for line in text.splitlines() if "error" in line][:8] or text[-800:]
        hint = f"check that {config.compiler()} knows C++20 (g++ 11 or newer)"
        raise BuildError(
            describe(
                f"building {library.label} failed in {job.unit}:\n{errors}",
                hint=ROOM if "No space left" in text else hint,
            )
        )
