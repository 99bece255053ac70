"""What older test files import from PyTorch's helpers, and newer helpers lack."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import unittest
from collections.abc import Callable
from typing import Any

HELPERS = "torch.testing._internal."


def _never() -> bool:
    return False


def _unchanged(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """A decorator for reduced precisions of another device."""
    return lambda test: test


def _gone(*given: Any, **_: Any) -> Any:
    """Skips the test that calls it, or that it decorates."""
    skip = unittest.skip("PyTorch does not have it any more")
    if len(given) == 1 and inspect.isfunction(given[0]):
        return skip(given[0])
    raise unittest.SkipTest("PyTorch does not have it any more")


def _skip_ops(_: str, __: str, to_skip: Any) -> Any:
    return importlib.import_module(f"{HELPERS}common_device_type").skipOps(to_skip)


def supply() -> None:
    """Put what is missing where the files look for it; nothing that is there is replaced."""
    helpers = {
        name: importlib.import_module(HELPERS + name)
        for name in (
            "common_cuda",
            "common_device_type",
            "common_methods_invocations",
            "common_mkldnn",
            "common_nn",
        )
    }
    operators, devices = helpers["common_methods_invocations"], helpers["common_device_type"]
    modules = helpers["common_nn"]
    missing: tuple[tuple[Any, str, Any], ...] = (
        (helpers["common_cuda"], "tf32_is_not_fp32", _never),
        (helpers["common_mkldnn"], "bf32_on_and_off", _unchanged),
        (operators, "binary_ufuncs_and_refs", operators.binary_ufuncs),
        (operators, "skip", getattr(devices, "skip", None)),
        (operators, "xfail", getattr(devices, "xfail", None)),
        (operators, "skipOps", _skip_ops),
    )
    for module, name, value in missing:
        if not hasattr(module, name):
            setattr(module, name, value)
    if not hasattr(modules, "new_module_tests"):
        vars(modules)["new_module_tests"] = modules.get_new_module_tests()


def supply_name(error: ImportError) -> None:
    """Put a name that a file imports, and PyTorch has no more, where it looks for it.

    A test that calls it is skipped; a constant, by its spelling, is False.

    Raises:
        ImportError: it says another thing.
    """
    missing = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
    if missing is None or hasattr(sys.modules[missing[2]], missing[1]):
        raise error
    setattr(sys.modules[missing[2]], missing[1], False if missing[1].isupper() else _gone)
