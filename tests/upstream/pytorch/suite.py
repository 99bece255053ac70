"""PyTorch's own tests as a suite: a file is one of the ``test`` folder of a checkout."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tests.upstream.cases import Tests, cases
from tests.upstream.pytorch.files import FILES, is_run
from tests.upstream.pytorch.names import is_generic, tests_of
from tests.upstream.pytorch.older import supply
from tests.upstream.pytorch.reasons import REASONS
from tests.upstream.suite import ROOT, Suite

HEAD = (
    "# PyTorch's own tests",
    "",
    "Made by `make test-pytorch`; do not edit. PyTorch's test files that ask the same of every",
    "device, none of them written here, run on `tpu`. Only tests that pass on the CPU count.",
)


def module(folder: Path, file: str) -> ModuleType:
    """The file as a module; those beside it, which it may import, can be found."""
    path = folder / f"{file}.py"
    sys.path[:0] = [str(folder), str(path.parent)]
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made  # its classes are pickled
    # Copied into another class, as PyTorch does, a method that asks for its class's base so asks
    # itself.
    text = path.read_text().replace("super(self.__class__, self)", "super()")
    exec(compile(text, str(path), "exec", dont_inherit=True), made.__dict__)
    return made


def load(folder: Path, file: str, device: str) -> Tests:
    """The tests of the file's classes that are run."""
    supply()
    tests = tests_of(module(folder, file), device)
    return {name: one for name, one in tests.items() if is_run(file, name)}


SUITE = Suite(
    "pytorch",
    FILES,
    cases(load, default_device=lambda test: not is_generic(test)),
    reasons=REASONS,
    results=ROOT / "build" / "upstream",
    page=ROOT / "docs" / "upstream.md",
    head=HEAD,
)
