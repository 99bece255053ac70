"""The ``fuse doctor`` command: what the device needs, and whether each is in order."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import torch

import fuse
from fuse import config
from fuse.cache.errors import CacheTrustError
from fuse.cache.permissions import private_folder
from fuse.commands.doctor_gpu import gpu
from fuse.commands.finding import Finding
from fuse.device import lazy
from fuse.device.core import CORE
from fuse.errors import FuseError
from fuse.native.build import Library
from fuse.versions import DISTRIBUTION, numbers

PYTHON = (3, 11)
COMPILER_SECONDS = 60.0
FREE_BYTES = 1 << 30


def main(arguments: Sequence[str]) -> int:
    """Print one line a check; 1 if anything is not in order, else 0."""
    parser = argparse.ArgumentParser(prog="fuse doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the same as a JSON document")
    as_json = parser.parse_args(arguments).json
    findings: list[Finding] = []
    for check in CHECKS:
        for finding in check():
            findings.append(finding)
            if not as_json:
                print(finding, flush=True)
    in_order = all(finding.ok for finding in findings)
    if as_json:
        print(json.dumps({"in_order": in_order, "findings": [*map(asdict, findings)]}, indent=2))
    else:
        print("\neverything is in order" if in_order else "\nsomething is not in order, see above")
    return 0 if in_order else 1


def python() -> list[Finding]:
    """The machine and the interpreter."""
    ok = sys.version_info[:2] >= PYTHON
    wanted = ".".join(map(str, PYTHON))
    hint = f"use Python {wanted} or newer"
    return [
        Finding("host", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"),
        Finding("python", f"{platform.python_version()} ({sys.executable})", ok, hint),
    ]


def packages() -> list[Finding]:
    """Every package that fuse requires, against the bounds of its own metadata."""
    wanted = metadata.requires(DISTRIBUTION) or []
    findings = [Finding(DISTRIBUTION, f"{fuse.__version__} ({Path(fuse.__file__).parent})")]
    findings += _namesake()
    for requirement in wanted:
        if "extra ==" not in requirement:
            findings.append(_package(requirement))
    return findings


def _namesake() -> list[Finding]:
    """The registry's ``fuse``, another project whose files would lie in the same folder."""
    try:
        found = metadata.distribution("fuse")
    except metadata.PackageNotFoundError:
        return []
    if found.read_text("INSTALLER") is None:  # a folder of sources, nothing that was installed
        return []
    value = f"fuse {found.version} is installed beside {DISTRIBUTION}, into the same folder"
    hint = f"pip uninstall fuse, then pip install --force-reinstall --no-deps {DISTRIBUTION}"
    return [Finding("fuse", value, False, hint)]


def _package(requirement: str) -> Finding:
    matched = re.match(r"[\w.-]+", requirement)
    name = matched.group() if matched else requirement
    hint = f"pip install -c constraints.txt '{requirement}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, "not installed", False, hint)
    ok = _within(version, requirement[len(name) :])
    return Finding(name, version if ok else f"{version}, wanted {requirement}", ok, hint)


def _within(version: str, bounds: str) -> bool:
    """Whether a version is within bounds such as ``>=2.11,<2.14``; their two operators suffice."""
    for operator, bound in re.findall(r"(>=|<)\s*([\d.]+)", bounds):
        reached = numbers(version) >= numbers(bound)
        if reached != (operator == ">="):
            return False
    return True


def autoload() -> list[Finding]:
    """Whether ``import torch`` finds the device without any other import."""
    if (reason := lazy.aside()) is not None:
        why, hint = reason
        return [Finding("autoload", why, False, hint)]
    ok = hasattr(torch, "tpu")
    value = "torch.tpu is registered" if ok else "torch.tpu is missing"
    hint = f"install {DISTRIBUTION} with pip, and unset TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    return [Finding("autoload", value, ok, hint)]


def compiler() -> list[Finding]:
    """The C++ compiler, by compiling a line of C++20 that includes Python's header."""
    if all(library.shipped().exists() for library in _libraries().values()):
        return [Finding("compiler", "not needed: the package brings its native libraries")]
    name = config.compiler()
    install = "install g++ 11 or newer (apt-get install g++), or name a compiler in CXX"
    if shutil.which(name) is None:
        return [Finding("compiler", f"{name} was not found", False, install)]
    version = _run([name, "--version"]).stdout.partition("\n")[0]
    findings = [Finding("compiler", version)]
    flags = ["-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    if _run([name, *flags], "#include <concepts>\n").returncode != 0:
        findings.append(Finding("C++20", f"{name} cannot compile it", False, install))
    headers = f"-I{sysconfig.get_path('include')}"
    if _run([name, headers, *flags], "#include <Python.h>\n").returncode != 0:
        hint = "install Python's headers (apt-get install python3-dev)"
        findings.append(Finding("Python.h", "not found", False, hint))
    return findings


def _libraries() -> Mapping[str, Library]:
    """The native libraries by name; without JAX the core alone."""
    try:
        # Lazily: JAX may be what is not in order.
        from fuse.commands.build import LIBRARIES  # noqa: PLC0415
    except ImportError:
        return {"core": CORE}
    return LIBRARIES


def _run(command: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=COMPILER_SECONDS, check=False
    )


def native_libraries() -> list[Finding]:
    """The native libraries; builds the core where that has not been done."""
    findings = []
    for name, library in _libraries().items():
        what = f"native {name}"
        if library is not CORE and not library.file().exists():
            findings.append(Finding(what, "built at its first use, or by fuse build"))
            continue
        started = time.perf_counter()
        try:
            path = library.built()
        except FuseError as error:
            findings.append(_failed(what, error))
        else:
            findings.append(Finding(what, f"{path} ({time.perf_counter() - started:.1f} s)"))
    return findings


def settings() -> list[Finding]:
    """Mode, backend and host fallback policy, as the environment asks for them."""
    read: tuple[tuple[str, Callable[[], object]], ...] = (
        ("mode", config.mode),
        ("backend", config.backend),
        ("host fallback", config.host_fallback),
        ("cache", config.cache_mode),
    )
    findings = []
    for what, setting in read:
        try:
            findings.append(Finding(what, str(setting())))
        except FuseError as error:
            findings.append(_failed(what, error))
    return findings


def folders() -> list[Finding]:
    """The cache's folder: this user's, writable, with room left."""
    folder = config.cache_dir()
    hint = "set FUSE_CACHE_DIR to a folder of your own that you can write"
    try:
        private_folder(folder, create=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
            pass
    except CacheTrustError as error:
        return [_failed("cache folder", error)]
    except OSError as error:
        return [Finding("cache folder", f"{folder}: {error}", False, hint)]
    free = shutil.disk_usage(folder).free
    value = f"{folder}, {free / (1 << 30):.1f} GiB free"
    return [Finding("cache folder", value, free >= FREE_BYTES, "make room on that disk")]


def devices() -> list[Finding]:
    """Start the device and compute something on each."""
    if not hasattr(torch, "tpu"):
        return [Finding("devices", "torch.tpu is missing", False, "see autoload above")]
    findings = []
    try:
        for index in range(torch.tpu.device_count()):
            total = (torch.arange(4, device=f"tpu:{index}") + 1).sum().item()
            name = torch.tpu.get_device_name(index)
            value = f"{name}, computes" if total == 10 else f"{name}: 1+2+3+4 gives {total}"
            findings.append(Finding(f"device tpu:{index}", value, total == 10, "report this"))
    except (RuntimeError, OSError, ImportError) as error:
        findings.append(_failed("devices", error))
    return findings


def dispatch() -> list[Finding]:
    """How executables are called, which depends on JAX's version."""
    try:
        wanted = config.backend()
    except FuseError:
        return []  # `settings` has said so
    if wanted != "xla":
        return []
    # Lazily: the other backend does without JAX.
    from fuse.backends.xla.dispatch import described  # noqa: PLC0415

    return [Finding("dispatch", described())]


def _failed(what: str, error: Exception) -> Finding:
    """An error as a finding: its first sentence, and the hint it gives, if any."""
    text, _, hint = str(error).partition("\n  hint: ")
    kind = "" if isinstance(error, FuseError) else f"{type(error).__name__}: "
    return Finding(what, kind + text.strip(), False, hint or "see the text")


CHECKS: tuple[Callable[[], list[Finding]], ...] = (
    python,
    packages,
    autoload,
    compiler,
    native_libraries,
    settings,
    folders,
    gpu,
    devices,
    dispatch,
)
