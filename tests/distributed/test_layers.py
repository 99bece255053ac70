"""The files of the process group's C++ have an order: a file includes what stands below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse.distributed.native import LIBRARY
from tests.native.layers import check_no_circle, files_of, long_ones, violations

LAYERS = LIBRARY.units
"""From the lowest up."""
FILES = files_of(LIBRARY)


@pytest.mark.parametrize("name", FILES)
def test_a_file_includes_what_stands_below_it(name: str) -> None:
    assert list(violations(name, FILES[name], FILES, LAYERS)) == []


@pytest.mark.parametrize(
    ("name", "included"),
    [
        ("transport/mesh.h", "collectives/call.h"),
        ("collectives/runner.cpp", "process_group/group.h"),
        ("collectives/work.h", "transport/gone.h"),
    ],
)
def test_a_broken_rule_is_seen(name: str, included: str) -> None:
    assert len(list(violations(name, f'#include "{included}"\n', FILES, LAYERS))) == 1


def test_no_two_files_need_each_other() -> None:
    check_no_circle(FILES)


def test_every_file_is_compiled_and_short() -> None:
    assert {Path(name).parts[0] for name in FILES} == set(LAYERS)
    assert long_ones(FILES) == set()
