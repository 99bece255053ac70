"""Memory that a chunk frees stays in the process, unless the user has chosen otherwise."""

from __future__ import annotations

import platform

import pytest

from fuse.backends.xla.backend import create
from fuse.backends.xla.cpu import memory as host_memory
from tests.device.helpers import run

FAULTS = """
import ctypes, json, resource, torch
torch.tpu.init()
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
size, faults = 200 << 20, []
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = library.malloc(size)
    ctypes.memset(block, 1, size)
    library.free(block)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps(faults[-1] < faults[0] / 4))
"""
GLIBC = platform.libc_ver()[0] == "glibc" and create().platform.name == "cpu"


@pytest.mark.skipif(not GLIBC, reason="a setting of glibc's, for the CPU platform")
@pytest.mark.parametrize(
    ("environment", "kept"),
    [({}, "true"), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, "false")],
    ids=["as it is", "the user has chosen"],
)
def test_a_large_block_is_used_again(environment: dict[str, str], kept: str):
    assert run(FAULTS, **environment).strip() == kept


HOLES = """
import ctypes, torch
from fuse.backends.xla.backend import create
from tests.fuzz.serving import resident
torch.tpu.init()
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
size = 1 << 16
blocks = [library.malloc(size) for _ in range(2000)]
for block in blocks:
    ctypes.memset(block, 1, size)
for block in blocks[:-1]:
    library.free(block)
before = resident()
create().give_back()
print(before - resident())
"""


@pytest.mark.skipif(not GLIBC, reason="a function of glibc's, for the CPU platform")
def test_free_memory_below_what_lives_is_given_back():
    assert int(run(HOLES)) > 90  # of 125 megabytes


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_memory.platform, "libc_ver", lambda: ("", ""))
    assert not host_memory.keep_freed_memory()


@pytest.mark.parametrize(
    ("name", "value"),
    [("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1"), ("MALLOC_MMAP_THRESHOLD_", "1048576")],
)
def test_what_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    monkeypatch.setenv(name, value)
    assert not host_memory.keep_freed_memory()
