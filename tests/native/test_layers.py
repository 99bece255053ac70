"""The folders of the native core are layers: a file includes what stands below it, or beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse.device.core import CORE
from tests.native.layers import files_of, long_ones, violations

LAYERS = ("runtime", "tiering", "tracing", "cpu_exec", "device", "aten", "bindings")
"""From the lowest up. The policy of tiers knows nothing but itself."""
ALONE = {"tiering"}
FILES = files_of(CORE)


@pytest.mark.parametrize("name", FILES)
def test_a_file_includes_what_stands_below_it(name: str) -> None:
    assert Path(name).parts[0] in LAYERS
    assert list(violations(name, FILES[name], FILES, LAYERS, ALONE)) == []


@pytest.mark.parametrize(
    ("name", "included"),
    [
        ("runtime/buffer.h", "tracing/recorder.h"),
        ("tracing/trie.h", "cpu_exec/host_call.h"),
        ("tiering/policy.h", "runtime/buffer.h"),
        ("aten/views.cpp", "bindings/graphs.h"),
        ("aten/views.cpp", "runtime/gone.h"),
    ],
)
def test_a_broken_rule_is_seen(name: str, included: str) -> None:
    text = f'#include "{included}"\n'
    assert len(list(violations(name, text, FILES, LAYERS, ALONE))) == 1


def test_every_file_is_compiled_once() -> None:
    folders = [unit for unit in CORE.units if not unit.endswith(".cpp")]
    assert sorted(folders) == sorted(LAYERS)
    assert {Path(name).parts[0] for name in FILES} == set(LAYERS)
    assert all(unit in FILES for unit in CORE.units if unit.endswith(".cpp"))


def test_files_are_short() -> None:
    assert long_ones(FILES) == set()
