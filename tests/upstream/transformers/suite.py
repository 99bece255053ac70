"""transformers' own test class of models as a suite: a file is an architecture.

The class, ``ModelTesterMixin``, is not in the wheel but in the source distribution, without the
files of the architectures and two modules that it imports, of exporters and of generation: these
are empty here. So the configurations are ours, and beside its tests there are some of ours, which
compare with the CPU (beside_cpu.py).
"""

from __future__ import annotations

import importlib.util
import sys
import types
import unittest
from pathlib import Path
from typing import Any, Final

from tests.upstream.cases import Tests, cases
from tests.upstream.sample import sample
from tests.upstream.suite import ROOT, Suite
from tests.upstream.transformers.architectures import ARCHITECTURES
from tests.upstream.transformers.reasons import REASONS

PACKAGE: Final = "transformers_tests"
MISSING: Final = {
    "exporters.test_export": "ExportTesterMixin",
    "generation.test_utils": "GenerationTesterMixin",
}
"""What the source distribution lacks: modules, each with the class that is looked for in it."""
APART: Final = tuple(sample(ARCHITECTURES, 10, 45))
ALSO_COMPILED: Final = (*sample(ARCHITECTURES, 16, 1), *APART)
ON_ACCELERATOR: Final = (*sample(ARCHITECTURES, 8, 2), *APART)


def shared(folder: Path, name: str) -> Any:
    """The module ``name`` of the source distribution's tests."""
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    sys.modules[PACKAGE] = package
    for module, mixin in MISSING.items():
        for part in (module.split(".")[0], module):
            sys.modules[f"{PACKAGE}.{part}"] = types.ModuleType(f"{PACKAGE}.{part}")
        setattr(sys.modules[f"{PACKAGE}.{module}"], mixin, type(mixin, (), {}))
    spec = importlib.util.spec_from_file_location(f"{PACKAGE}.{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def load(folder: Path, file: str, device: str) -> Tests:
    """The tests of the architecture ``file``, by ``tests`` of the source distribution."""
    # By name: they import transformers, which reads the settings of the process.
    ours = importlib.import_module("tests.upstream.transformers.beside_cpu")
    tester = importlib.import_module("tests.upstream.transformers.tester")
    common = shared(folder, "test_modeling_common")
    classes = tester.model_classes(file)
    members: dict[str, Any] = {
        "all_model_classes": classes,
        "is_encoder_decoder": tester.small(file).is_encoder_decoder,
        "has_attentions": tester.has_attentions(file),
        "test_resize_embeddings": "input_ids" in tester.inputs(file, tester.small(file)),
        "_torch_compile_train_cls": tester.trained(file),
        "setUp": lambda self: setattr(self, "model_tester", tester.Tester(file, device)),
    }
    bases: tuple[Any, ...] = (common.ModelTesterMixin, ours.BesideCpu, unittest.TestCase)
    if any(one.can_generate() for one in classes):
        bases = (common.GenerationTesterMixin, *bases)
    made = type("ModelTest", bases, members)
    names = unittest.TestLoader().getTestCaseNames(made)
    return {f"ModelTest.{name}": made(name) for name in names}


def lanes(file: str) -> tuple[str, ...]:
    """All are run on the CPU and by default, samples of them in the two other lanes."""
    compiled = ("compiled",) if file in ALSO_COMPILED else ()
    return ("cpu", "default", *compiled, *(("accelerator",) if file in ON_ACCELERATOR else ()))


SUITE = Suite(
    "transformers",
    ARCHITECTURES,
    cases(load, default_device=lambda test: False),
    reasons=REASONS,
    results=ROOT / "build" / "upstream-transformers",
    page=ROOT / "docs" / "upstream-transformers.md",
    head=(
        "# transformers' own tests of models",
        "",
        "Made by `make test-transformers`; do not edit. `ModelTesterMixin` of transformers' source",
        "distribution, unmodified, with small configurations of ours, and tests of ours that",
        "compare outputs, gradients, training, `generate` and `torch.compile` with the CPU's. What",
        "passes on the CPU has to pass on the device, and what asks for an accelerator as well.",
    ),
    first_column="architecture",
    settings=lambda file, device: {
        "TRANSFORMERS_TEST_DEVICE": device,
        "HF_HUB_OFFLINE": "1",
        "RUN_SLOW": "1",
    },
    lanes=lanes,
    apart=APART,
    accelerators=True,
)
