"""The stubs of the native modules declare what these have, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

from fuse.device import core
from fuse.distributed import native


def declared(stub: Path, name: str) -> set[str]:
    """The methods of a stub's class ``name``."""
    tree = ast.parse(stub.read_text())
    (found,) = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name]
    return {one.name for one in found.body if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("module", "stub", "name"),
    [(core, "_core.pyi", "Core"), (native, "_native.pyi", "Native")],
    ids=["device", "distributed"],
)
def test_a_stub_has_the_names_of_its_module(module: ModuleType, stub: str, name: str) -> None:
    path = Path(str(module.__file__)).with_name(stub)
    own = {one for one in vars(module.load()) if not one.startswith("__")}
    assert declared(path, name) == own
