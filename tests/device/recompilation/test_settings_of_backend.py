"""What a program changes of its backend's setting while it runs: known streams follow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import fuse
from fuse.backends.xla.backend import XlaBackend
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.matmul import precision
from fuse.device import lazy
from tests.device.helpers import DEVICE, run
from tests.lanes import only_in


@pytest.mark.parametrize("name", ["tpu", "gpu"])
def test_float32_products_follow_pytorch_elsewhere(name: str) -> None:
    before = torch.get_float32_matmul_precision()
    context = SimpleNamespace(platform=Platform(name))
    found = []
    try:
        for setting in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(setting)
            found.append(str(precision(context)))  # type: ignore[arg-type]
            assert precision(SimpleNamespace(platform=Platform("cpu"))) is None  # type: ignore[arg-type]
    finally:
        torch.set_float32_matmul_precision(before)
    assert found == ["HIGHEST", "HIGH", "DEFAULT"]


CONVOLUTIONS = """
import torch
from types import SimpleNamespace
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.matmul import precision_of_convolutions
def found(name):
    made = precision_of_convolutions(SimpleNamespace(platform=Platform(name)))
    return made and made.name
def print_all(): print(found("cpu"), found("tpu"), found("gpu"))

print_all()
torch.backends.cudnn.allow_tf32 = False
print_all()
torch.set_float32_matmul_precision("medium")
print_all()
torch.backends.tpu.matmul.fp32_precision = "ieee"
torch.backends.cudnn.allow_tf32 = True
print_all()
"""


def test_convolutions_on_a_gpu_follow_cudnns_setting() -> None:
    """Elsewhere that of products; so does a GPU where the device's own is set."""
    assert run(CONVOLUTIONS).splitlines() == [
        "None HIGHEST HIGH",
        "None HIGHEST HIGHEST",
        "None DEFAULT HIGHEST",
        "None HIGHEST HIGHEST",
    ]


NEWER = """
import torch
from types import SimpleNamespace
from fuse.backends.xla.platform import Platform
from fuse.backends.xla.rules.matmul import precision
elsewhere = SimpleNamespace(platform=Platform("gpu"))
def found(): return precision(elsewhere).name

assert found() == "HIGHEST"
for setting, name in {"tf32": "HIGH", "bf16": "DEFAULT", "ieee": "HIGHEST"}.items():
    torch.backends.fp32_precision = setting
    assert found() == name, (setting, found())
torch.backends.fp32_precision = "none"
torch.backends.cuda.matmul.fp32_precision = "tf32"
assert found() == "HIGH"
torch.backends.tpu.matmul.fp32_precision = "ieee"
assert found() == "HIGHEST"
with torch.tpu.precision(torch.tpu.Precision.DEFAULT):
    assert found() == "DEFAULT" and torch.backends.tpu.matmul.fp32_precision == "bf16"
with torch.backends.tpu.flags(): assert found() == "HIGH"
assert found() == "HIGHEST"
try: torch.backends.tpu.matmul.fp32_precision = "fp32"
except ValueError as error: print(error)
x = torch.ones(4, 4, device="tpu")
assert (x @ x).sum().item() == 64
"""


def test_the_newer_settings_are_followed_where_the_old_question_raises() -> None:
    assert run(NEWER).strip() == "a precision is ieee, tf32, bf16 or none, and not 'fp32'"


@only_in("compiled", "default", reason="here is the CPU platform")
def test_a_backend_elsewhere_names_the_setting_in_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = lazy.engine().backend
    assert backend.setting() == ""
    assert "float32 products" not in backend.fingerprint()
    monkeypatch.setattr(backend, "platform", Platform("gpu"))
    setting = "highest, convolutions high"
    assert backend.setting() == backend.fingerprint()["float32 products"] == setting
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert backend.setting() == "highest"


@only_in("compiled", "accelerator", reason="counts executables")
def test_a_known_stream_takes_the_executables_of_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {"setting": "one"}
    own = XlaBackend.fingerprint
    monkeypatch.setattr(XlaBackend, "setting", lambda self: now["setting"])
    monkeypatch.setattr(XlaBackend, "fingerprint", lambda self: own(self) | now)
    x = torch.arange(6.0).to(DEVICE)

    def step() -> float:
        return ((x * 3 + 1).sin() * 5).sum().item()

    plain = [step() for _ in range(6)]
    before = fuse.stats()["compiles"]
    now["setting"] = "two"
    assert [step() for _ in range(6)] == plain
    assert fuse.stats()["compiles"] == before + 1
    now["setting"] = "one"
    assert [step() for _ in range(6)] == plain
    assert fuse.stats()["compiles"] == before + 1
