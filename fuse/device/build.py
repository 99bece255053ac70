"""Builds the native core once, and loads it.

The result is cached in a folder named after everything that it depends on: torch and
Python versions, compiler, and the sources themselves. A build happens in a private
folder and is renamed into place, so that processes that start together all end up with a
whole library and a killed build leaves nothing in the way of the next one.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from types import ModuleType

import torch

from fuse import config
from fuse.errors import BuildError, describe

SOURCES = Path(__file__).parent / "csrc"
UNITS = (
    "core.cpp",
    "autocast.cpp",
    "host_attention.cpp",
    "host_chains.cpp",
    "host_kernels.cpp",
    "host_norms.cpp",
    "host_products.cpp",
    "host_updates.cpp",
)
FLAGS = ("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
BUILD_SECONDS = 900.0


def load() -> ModuleType:
    """Return the native core's module, building it first where no build of it exists."""
    return _import(built())


def built() -> Path:
    """The shared library of the native core; builds it where there is none.

    Raises ``BuildError`` where no compiler is found or the compiler fails.
    """
    target = config.build_dir() / _digest() / "_core.so"
    if target.exists():
        return target
    if shutil.which(config.compiler()) is None:
        raise BuildError(
            describe(
                f"the tpu device needs a C++ compiler, and {config.compiler()!r} was not found",
                remedy="install one (apt-get install g++), or name yours in CXX",
            )
        )
    return _build(target)


def _digest() -> str:
    digest = hashlib.sha256()
    parts = [torch.__version__, sys.version, config.compiler(), *FLAGS, sysconfig.get_platform()]
    parts.append(importlib.metadata.version("jaxlib"))  # its headers
    for path in sorted(SOURCES.glob("*.cpp")) + sorted(SOURCES.glob("*.h")):
        parts += [path.name, path.read_text()]
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:24]


def _build(target: Path) -> Path:
    _private_folder(target.parent)
    print("fuse: building the native core, once, about half a minute ...", file=sys.stderr)
    started = time.perf_counter()
    # In the target's own folder, so that the final rename stays within one file system.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
        library = _compile(Path(folder))
        os.replace(library, target)
    print(f"fuse: built in {time.perf_counter() - started:.0f} s ({target})", file=sys.stderr)
    return target


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(
            describe(
                f"the native core cannot be stored in {folder}: {error}",
                remedy="set FUSE_BUILD_DIR to a folder that you can write",
            )
        ) from error


def _compile(folder: Path) -> Path:
    root = Path(torch.__file__).parent
    includes = [root / "include", root / "include/torch/csrc/api/include"]
    includes.append(Path(sysconfig.get_path("include")))
    includes += _jaxlib_headers()
    common = [config.compiler(), *FLAGS, *(f"-isystem{path}" for path in includes)]
    jobs = [
        ([*common, "-c", str(SOURCES / unit), "-o", str(folder / f"{unit}.o")], unit)
        for unit in UNITS
    ]
    running = [
        (subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT), unit)
        for line, unit in jobs
    ]
    try:
        for process, unit in running:
            output, _ = process.communicate(timeout=BUILD_SECONDS)
            _check(process.returncode, unit, output)
    finally:
        for process, _ in running:
            if process.poll() is None:
                process.kill()
            with process:
                pass  # closes its pipe and reaps it, also where another unit failed first
    library = folder / "_core.so"
    link = [config.compiler(), "-shared", *(str(folder / f"{unit}.o") for unit in UNITS)]
    link += ["-o", str(library), f"-L{root / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]
    linked = subprocess.run(
        link, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BUILD_SECONDS, check=False
    )
    _check(linked.returncode, "linking", linked.stdout)
    return library


def _jaxlib_headers() -> list[Path]:
    """XLA's foreign function interface; found without importing JAX, which takes a second."""
    found = importlib.util.find_spec("jaxlib")
    folders = (found.submodule_search_locations if found is not None else None) or ()
    return [Path(folder) / "include" for folder in folders]


def _check(code: int, unit: str, output: bytes) -> None:
    if code != 0:
        text = output.decode(errors="replace")
        errors = [line for line in text.splitlines() if "error" in line][:8] or text[-800:]
        raise BuildError(
            describe(
                f"building the native core failed in {unit}:\n{errors}",
                remedy=f"check that {config.compiler()} knows C++20 (g++ 11 or newer)",
            )
        )


def _import(library: Path) -> ModuleType:
    name = "fuse.device._core"
    if name in sys.modules:
        return sys.modules[name]
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    if spec is None:
        raise BuildError(f"{library} is no extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module
