"""What the device's tests share: counting what the engine had to make, and child processes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from fuse.backends.xla.cpu import kernels
from fuse.config import TIERS
from fuse.device import lazy
from tests import forked

DEVICE = torch.device("tpu")
Started: TypeAlias = subprocess.Popen[str] | forked.Process

_library = torch.library.Library("fuse_tests", "FRAGMENT")
_library.define("host_only(Tensor x) -> Tensor")
_library.define("host_only_(Tensor(a!) x) -> Tensor(a!)")
_library.impl("host_only", lambda x: x * 2 + 1, "CPU")
_library.impl("host_only_", lambda x: x.mul_(2), "CPU")
host_only = torch.ops.fuse_tests.host_only
host_only_ = torch.ops.fuse_tests.host_only_
SECONDS = 240.0
_times = itertools.count()


def made() -> int:
    """Executables that had to be found outside memory so far: compiled, or loaded from disk."""
    return int(fuse.stats()["cache"]["memory"]["misses"])


def host_calls(program: Callable[[], object]) -> int:
    """The calls of ``program`` that ran uncompiled."""
    before = fuse.stats()["uncompiled_operations"]
    program()
    return int(fuse.stats()["uncompiled_operations"]) - before


def compile_anew(patch: pytest.MonkeyPatch) -> None:
    """Whatever runs from here on is compiled, though it was before: its key is another."""
    engine = lazy.engine()
    fields = {**engine.backend.fingerprint(), "compiled anew": str(next(_times))}
    patch.setattr(engine.backend, "fingerprint", lambda: fields)


@contextmanager
def failing(backend: Any, error: Exception) -> Iterator[None]:
    """Nothing that is run in the block works."""

    def refuse(*_: Any) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "execute", refuse)
        yield


def note_kernels(patch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Which of PyTorch's kernels programs compiled from now on call by ``kernels``' function
    ``name``; filled as they are compiled."""
    found: list[str] = []
    function = getattr(kernels, name)

    def noted(target: str, *arguments: Any, **attributes: Any) -> Any:
        found.append(target)
        return function(target, *arguments, **attributes)

    patch.setattr(kernels, name, noted)
    return found


@contextmanager
def mode(name: str, **options: Any) -> Iterator[None]:
    """The block runs in another mode."""
    before = fuse.get_mode()
    fuse.set_mode(name, **options)
    try:
        yield
    finally:
        fuse.set_mode(before)


def start(code: str, *options: str, fresh: bool = False, **environment: str) -> Started:
    """A Python process that runs ``code``; its output is read as text.

    ``fresh`` for an interpreter that has nothing imported, as one that is given options does: its
    hash seed and its addresses are its own then.
    """
    return _start([*options, "-c", code], fresh or bool(options), environment)


def start_file(path: Path, **environment: str) -> Started:
    """The same of a file, which processes that it spawns can import."""
    return _start([str(path)], False, environment)


def _start(arguments: list[str], fresh: bool, environment: dict[str, str]) -> Started:
    settings = {**os.environ, **environment}
    if not fresh:
        return forked.Process(arguments, settings)
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=settings,
    )


def finish(process: Started, seconds: float = SECONDS) -> tuple[str, str]:
    """Its output and its errors, or a failure if it does not end in time."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        process.send_signal(signal.SIGABRT)  # faulthandler prints where it hangs
        _, text = process.communicate()
        raise AssertionError(f"did not end in {seconds} s:\n{text}") from error


def run(code: str, *, fresh: bool = False, **environment: str) -> str:
    """The output of a process that must end well."""
    process = start(code, fresh=fresh, **environment)
    out, errors = finish(process)
    assert process.returncode == 0, errors
    return out


@contextmanager
def recorder(limit: int | None = None, tier: str | None = None) -> Iterator[None]:
    """The block starts with an empty trie, other bounds, and nothing warned about yet; with a
    ``tier`` it runs in this one, or with ``auto`` chooses, whatever the setting is. What is to run
    compiled does from the first call on: executables are waited for."""
    core, engine = lazy.core(), lazy.engine()
    compiler = engine.planning.compiler
    if tier not in (None, "compiled") and not engine.backend.shares_host_memory():
        pytest.skip("no call runs uncompiled on this platform")
    torch.tpu.synchronize()
    core.forget()
    engine.host_calls.said.clear()
    core.set_limit(limit or engine.max_operations)
    background = compiler.background
    if tier is not None:
        core.set_tier(TIERS.index(tier))
        compiler.background = background and tier != "compiled"
    try:
        yield
    finally:
        torch.tpu.synchronize()
        compiler.background = background
        core.set_limit(engine.max_operations)
        lazy.bound_uncompiled(core, engine)


class Counted:
    """What the recorder did in a block.

    Attributes:
        recorded: operations.
        uncompiled: operations that ran uncompiled.
        chunks: that were executed.
    """

    def __enter__(self) -> Counted:
        self._before = fuse.stats()
        return self

    def __exit__(self, *_: object) -> None:
        torch.tpu.synchronize()
        after = fuse.stats()
        self.recorded = after["operations"] - self._before["operations"]
        self.chunks = after["chunks"] - self._before["chunks"]
        self.uncompiled = after["uncompiled_operations"] - self._before["uncompiled_operations"]


class Block(nn.Module):
    """A transformer's layer over vectors of 8 numbers, with ``heads`` heads."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.out_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = self.qkv(self.norm(x)).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = split.unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.feed(self.out_norm(x))
