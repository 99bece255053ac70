"""A library's module is extended once the program has imported it, and none is imported for it."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuse.integrations import registration

STATE = """
class DistributedType:
    NO, MULTI_GPU = "NO", "MULTI_GPU"

class PartialState:
    @property
    def default_device(self):
        raise NotImplementedError

    def _prepare_backend(self, cpu=False, sagemaker_dp=False, backend=None):
        return backend, DistributedType.NO

    def set_device(self):
        pass
"""


@pytest.fixture
def accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of accelerate's name and form, in the place of the one that may be installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "accelerate"]:
        monkeypatch.delitem(sys.modules, name)
    package = tmp_path / "accelerate"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "state.py").write_text(STATE)
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in ("accelerate.state", "accelerate"):
        sys.modules.pop(name, None)


def test_a_module_is_extended_when_it_is_imported(accelerate: Path) -> None:
    state = importlib.import_module("accelerate.state")
    assert state.__file__ == str(accelerate / "state.py")
    prepare = state.PartialState._prepare_backend
    assert prepare.__module__ == "accelerate.state" or prepare.__wrapped__ is not None
    assert inspect.unwrap(prepare) is not prepare
    assert inspect.getsource(state) == STATE


def test_its_other_modules_are_left_alone(accelerate: Path) -> None:
    (accelerate / "utils.py").write_text(STATE)
    utils = importlib.import_module("accelerate.utils")
    assert inspect.unwrap(utils.PartialState.set_device) is utils.PartialState.set_device


def test_registering_twice_waits_once() -> None:
    registration.register()
    waiting = [one for one in sys.meta_path if isinstance(one, registration._Waiting)]
    assert len(waiting) == 1


def test_a_module_that_is_not_there_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registration.INTEGRATIONS, "no_such_library", "fuse.integrations.nobody")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        importlib.import_module("no_such_library")


def test_import_torch_loads_no_library_and_no_integration() -> None:
    names = {name.partition(".")[0] for name in registration.INTEGRATIONS} - {"torch"}
    names |= {*registration.INTEGRATIONS, *registration.INTEGRATIONS.values()}
    program = f"import sys, torch; print(sorted({sorted(names)!r} & sys.modules.keys()))"
    program = program.replace("[", "{", 1).replace("]", "}", 1)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.strip() == "[]"
