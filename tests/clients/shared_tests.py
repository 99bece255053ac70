"""transformers' own test class of models, `ModelTesterMixin`, on the device that is asked for.

    TRANSFORMERS_TEST_DEVICE=tpu python -m tests.clients.shared_tests Llama

prints, as JSON, what became of each of its tests: "passes", or "skipped" or "fails" and why.
The class is not in the wheel but in the source distribution (`make clients` unpacks that into
``FOLDER``), without two classes that it derives from or asks for, of exporters and of generation:
they are empty here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import types
import unittest
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import transformers
from transformers.testing_utils import torch_device

from tests.clients.shared_models import MODELS, Tester

FOLDER = Path(__file__).parents[2] / "build" / "transformers-tests"
PACKAGE = "transformers_tests"
MISSING = {
    "exporters.test_export": "ExportTesterMixin",
    "generation.test_utils": "GenerationTesterMixin",
}
"""What the source distribution lacks: modules, each with the class that is looked for in it."""


def shared(name: str) -> Any:
    """The module ``name`` of the source distribution's tests."""
    [path] = FOLDER.glob(f"transformers-{transformers.__version__}/tests/{name}.py")
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(path.parent)]
    sys.modules[PACKAGE] = package
    for module, mixin in MISSING.items():
        for part in (module.split(".")[0], module):
            sys.modules[f"{PACKAGE}.{part}"] = types.ModuleType(f"{PACKAGE}.{part}")
        setattr(sys.modules[f"{PACKAGE}.{module}"], mixin, type(mixin, (), {}))
    spec = importlib.util.spec_from_file_location(f"{PACKAGE}.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Outcomes(unittest.TestResult):
    """What became of each test, by its name; of parts of one, the first that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, str] = {}

    def keep(self, test: Any, outcome: str) -> None:
        self.of.setdefault(test.id().split(".")[-1], outcome)

    def addSuccess(self, test: Any) -> None:
        self.keep(test, "passes")

    def addSkip(self, test: Any, reason: str) -> None:
        self.keep(test, f"skipped: {reason}")

    def addFailure(self, test: Any, err: Any) -> None:
        self.keep(test, failure(err))

    def addError(self, test: Any, err: Any) -> None:
        self.keep(test, failure(err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.keep(test, failure(err))


def failure(raised: tuple[type[BaseException], BaseException, TracebackType]) -> str:
    """A failed test's exception and the innermost line of it."""
    kind, value, trace = raised
    while trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"fails: {kind.__name__} at {where}: {value}"


def run(name: str, only: list[str]) -> dict[str, str]:
    """What became of each test of the architecture ``name``, or of those of ``only``."""
    common = shared("test_modeling_common")
    model = MODELS[name]
    members: dict[str, Any] = {
        "all_model_classes": model.classes,
        "is_encoder_decoder": model.encoder_decoder,
        "has_attentions": model.attentions,
        "test_resize_embeddings": "pixel_values" not in model.inputs(),
        "_torch_compile_train_cls": model.compiled,
        "setUp": lambda self: setattr(self, "model_tester", Tester(model, torch_device)),
    }
    writes = any(one.can_generate() for one in model.classes)
    bases: tuple[Any, ...] = (common.GenerationTesterMixin,) if writes else ()
    bases = (common.ModelTesterMixin, *bases, unittest.TestCase)
    made = type(f"{name.replace(' ', '').replace('-', '')}ModelTest", bases, members)
    outcomes = Outcomes()
    names = unittest.TestLoader().getTestCaseNames(made)
    unittest.TestSuite(made(one) for one in names if not only or one in only).run(outcomes)
    return outcomes.of


def main() -> None:
    """Print the outcomes as the last line."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        found = run(sys.argv[1], sys.argv[2:])
    print(json.dumps({"device": torch_device, "outcomes": found}))


if __name__ == "__main__":
    main()
