"""PyTorch's own tests as a suite: a file is one of the ``test`` folder of a checkout."""

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path
from types import ModuleType

from tests.upstream.cases import Tests, cases
from tests.upstream.pytorch.compilers import compare_with_eager, stand_for_gpu
from tests.upstream.pytorch.files import COMPILERS, FILES, is_run
from tests.upstream.pytorch.names import is_generic, tests_of
from tests.upstream.pytorch.older import supply, supply_name
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
    code = compile(text, str(path), "exec", dont_inherit=True)
    while True:
        try:
            exec(code, made.__dict__)
        except ImportError as error:
            supply_name(error)
        else:
            return made


def load(folder: Path, file: str, device: str) -> Tests:
    """The tests of the file's classes that are run."""
    supply()
    gpu = stand_for_gpu(device) if file in COMPILERS else "gpu"
    loaded = module(folder, file)
    if file in COMPILERS:
        compare_with_eager(loaded)
    tests = tests_of(loaded, device, gpu)
    return {name: one for name, one in tests.items() if is_run(file, name)}


def has_default_device(test: unittest.TestCase) -> bool:
    """Whether a test names no device, and so is for the default one."""
    file = type(test).__module__.rpartition(".")[2]
    return not is_generic(test) and file not in {Path(one).name for one in COMPILERS}


SUITE = Suite(
    "pytorch",
    FILES,
    cases(load, has_default_device),
    reasons=REASONS,
    results=ROOT / "build" / "upstream",
    page=ROOT / "docs" / "upstream.md",
    head=HEAD,
)
