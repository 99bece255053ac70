"""Where PyTorch can use another accelerator, ``import torch`` leaves nothing of this package."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from fuse.device import accelerators
from tests.device.helpers import run, start

FAKE = """
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import SimpleNamespace

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "fuse.device.accelerators":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)))
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            module.NODES = Path(__file__).parent
            module.torch = SimpleNamespace(
                _C=SimpleNamespace(_has_cuda=True, _has_xpu=False, _has_mps=False),
                version=SimpleNamespace(hip=None),
                cuda=SimpleNamespace(_device_count_nvml=lambda: 1),
            )
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""
"""Fakes what the probe asks: a PyTorch built for CUDA, a device node, and NVML's answer."""

UNTOUCHED = """
import sys, os, types, warnings
warnings.simplefilter("error")
import torch, torch.distributed
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("fuse", "jax")))
print(torch._C._get_privateuse1_backend_name(), hasattr(torch, "tpu"))
print(hasattr(torch.Tensor, "tpu"), hasattr(torch.nn.Module, "tpu"))
print(torch.accelerator.current_accelerator(), torch.accelerator.is_available())
print(torch.accelerator.device_count())
print(torch.Tensor.pin_memory is torch._C.TensorBase.pin_memory)
inside = {name: vars(torch._C).get(name) for name in sorted(dir(torch._C))}
print([name for name, one in inside.items() if isinstance(one, types.FunctionType)])
for one in (torch, torch.accelerator, torch.Tensor, torch.distributed.distributed_c10d):
    made = {k: v for k, v in vars(one).items() if type(v) in (types.FunctionType, type)}
    print([name for name, value in made.items() if "fuse" in value.__module__])
print(sorted(torch.distributed.Backend.backend_list))
print([type(one).__name__ for one in sys.meta_path if type(one).__name__ == "_Waiting"])
for text in ("tpu", "tpu:0"):
    try: print(torch.device(text))
    except RuntimeError as error: print(str(error)[:60])
def fork():
    child = os.fork()
    if child == 0:
        x = torch.ones(50, 50, requires_grad=True); (x @ x).sum().backward()
        os._exit(int(x.grad[0, 0].item()) - 93)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
torch.set_num_threads(1)
fork(); (torch.ones(2, requires_grad=True) * 2).sum().backward(); fork()
"""
USED = (
    "print((torch.ones(2, device='tpu') + 1).tolist(), torch.accelerator.current_accelerator())\n"
)


@pytest.fixture
def beside(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds a CUDA device."""
    (tmp_path / "sitecustomize.py").write_text(FAKE)
    (tmp_path / "nvidia0").touch()
    return {"PYTHONPATH": str(tmp_path)}


def test_nothing_is_replaced_where_nobody_uses_the_device(beside: dict[str, str]) -> None:
    found = run(UNTOUCHED, fresh=True, **beside)
    assert found == run(UNTOUCHED, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found.startswith("[]\nprivateuseone False\n") and found.endswith("\n7\n7\n")


@pytest.mark.parametrize(
    "code",
    ["import torch\nimport fuse\n", "import fuse\nimport torch\n", "import torch, fuse.modes\n"],
)
def test_import_fuse_registers_it_and_says_what_fails_then(
    code: str, beside: dict[str, str]
) -> None:
    process = start(code + "import fuse\n" + USED, fresh=True, **beside)
    output, errors = process.communicate(timeout=240)
    assert output == "[2.0, 2.0] tpu\n", errors
    assert errors.count("BesideWarning: the tpu device is registered in a process") == 1
    assert "can use cuda" in errors and "loss.backward() of cuda tensors fails" in errors


def test_the_setting_decides_alone(beside: dict[str, str]) -> None:
    process = start("import torch\n" + USED, fresh=True, FUSE_AUTOLOAD="1", **beside)
    output, errors = process.communicate(timeout=240)
    assert output == "[2.0, 2.0] tpu\n" and errors.count("BesideWarning") == 1, errors
    never = (
        "import sys, torch\nprint('fuse' in sys.modules)\nimport fuse\n"
        "print(hasattr(torch, 'tpu'))\n"
        "try: fuse.set_mode('strict'); fuse.explain(lambda: None)\n"
        "except RuntimeError as error: print(error)"
    )
    assert run(never, fresh=True, FUSE_AUTOLOAD="0").splitlines() == [
        "False",
        "False",
        "FUSE_AUTOLOAD=0 keeps the device tpu out of this process.",
        "  hint: unset FUSE_AUTOLOAD",
    ]


def test_another_package_has_pytorchs_place_for_devices() -> None:
    code = (
        "import torch\ntorch.utils.rename_privateuse1_backend('npu')\nimport fuse\n"
        "try: fuse.explain(lambda: None)\nexcept RuntimeError as error: print(error)"
    )
    found = run(code, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found.startswith("PyTorch has one device of other packages a process, and that is npu.")
    assert "hint: uninstall one of the two packages" in found


def built(cuda: bool = False, xpu: bool = False, mps: bool = False, hip: str | None = None) -> dict:
    return {"cuda": cuda, "xpu": xpu, "mps": mps, "hip": hip}


@pytest.mark.parametrize(
    ("pytorch", "nodes", "count", "name"),
    [
        (built(), ["nvidia0", "kfd"], 1, None),
        (built(cuda=True), [], 1, None),
        (built(cuda=True), ["nvidia0"], 2, "cuda"),
        (built(cuda=True), ["nvidia0"], 0, None),  # CUDA_VISIBLE_DEVICES hides it
        (built(cuda=True), ["nvidiactl"], -1, "cuda"),  # NVML cannot say
        (built(cuda=True), ["dxg"], -1, "cuda"),
        (built(cuda=True), ["null"], 1, None),
        (built(cuda=True, hip="7"), ["nvidia0"], 1, None),
        (built(cuda=True, hip="7"), ["kfd"], 1, "cuda"),
        (built(mps=True), [], 0, "mps"),
        (built(xpu=True), [], 0, None),
    ],
)
def test_what_is_usable(
    pytorch: dict,
    nodes: list[str],
    count: int,
    name: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for node in nodes:
        (tmp_path / node).touch()
    torch = SimpleNamespace(
        _C=SimpleNamespace(**{f"_has_{one}": pytorch[one] for one in ("cuda", "xpu", "mps")}),
        version=SimpleNamespace(hip=pytorch["hip"]),
        cuda=SimpleNamespace(_device_count_nvml=lambda: count, _device_count_amdsmi=lambda: count),
    )
    monkeypatch.setattr(accelerators, "torch", torch)
    monkeypatch.setattr(accelerators, "NODES", tmp_path)
    assert accelerators.usable() == name


def test_pytorch_has_what_the_probe_asks_of_it() -> None:
    code = (
        "import torch\n"
        "print(torch._C._has_cuda in (True, False), torch._C._has_xpu in (True, False))\n"
        "print(torch._C._has_mps in (True, False), torch.cuda._device_count_nvml() <= 8)\n"
        "print(callable(torch.cuda._device_count_amdsmi), torch.cuda.is_initialized())\n"
    )
    assert run(code, fresh=True) == "True True\nTrue True\nTrue False\n"


@pytest.mark.parametrize("visible", ["", "-1"])
def test_hidden_devices_are_none(visible: str) -> None:
    """By PyTorch's own reading of the variable, whatever NVML would say."""
    code = "import torch\nprint(torch.cuda._device_count_nvml())"
    assert run(code, fresh=True, CUDA_VISIBLE_DEVICES=visible) == "0\n"
