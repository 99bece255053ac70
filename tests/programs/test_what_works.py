"""What the README's table says of PyTorch, where no other file of tests has it."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fuse
from tests.programs.harness import DEVICE, compare_with_cpu


def test_checkpointing_recomputes_the_same_numbers() -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        x = torch.linspace(-1, 1, 6).to(device).requires_grad_()
        checkpoint(lambda v: (v.sin() * v).exp(), x, use_reentrant=False).sum().backward()
        return [x.grad]

    compare_with_cpu(program)


def test_anomaly_mode_names_the_function() -> None:
    x = torch.zeros(2, device=DEVICE, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="Anomaly Detection|Error detected"),
        torch.autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match="SqrtBackward0.*nan|nan.*SqrtBackward0"),
    ):
        (x.sqrt() * 0).sum().backward()


def test_an_exported_program_runs_at_other_sizes_and_from_a_file() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU()).to(DEVICE)
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        model, (torch.linspace(0, 1, 6, device=DEVICE).view(2, 3),), dynamic_shapes=({0: batch},)
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    x = torch.linspace(-1, 1, 15, device=DEVICE).view(5, 3)
    found = torch.export.load(file).module()(x)
    assert found.device.type == "tpu"
    torch.testing.assert_close(found.cpu(), copy.deepcopy(model).cpu()(x.cpu()))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_graphs_of_dynamo_run_as_the_program_does(backend: str) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(3, 3).to(device)
        run = torch.compile(model, backend=backend) if device.type == "tpu" else model
        run(torch.linspace(0, 1, 6).view(2, 3).to(device)).square().sum().backward()
        return [model.weight.grad, model.bias.grad]

    compare_with_cpu(program)
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_scripted_and_traced_functions() -> None:
    x = torch.linspace(-1, 1, 6, device=DEVICE).view(2, 3)
    model = nn.Linear(3, 3).to(DEVICE)
    traced = torch.jit.trace(model, x)
    torch.testing.assert_close(traced(x + 1).cpu(), model(x + 1).cpu())
    scripted = torch.jit.script(_doubled)
    assert torch.equal(scripted(x).cpu(), x.cpu() * 2 + 1)


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d])
def test_traced_convolutions(kind: type[nn.Module]) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(kind(2, 3, 3, padding=1), nn.GELU(), kind(3, 2, 3))
        x = torch.randn(2, 2, *[8] * (model[0].weight.dim() - 2))
        run = torch.jit.trace(model.to(device), x.to(device), check_trace=False)
        assert "aten::_convolution" in str(run.inlined_graph)
        result = run((x + 1).to(device))
        result.square().sum().backward()
        return [result, *(one.grad for one in model.parameters())]

    compare_with_cpu(program)


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def test_a_copy_and_a_pickle_keep_device_and_value() -> None:
    model = nn.Linear(3, 2).to(DEVICE)
    for one in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert one.weight.device.type == "tpu"
        assert one.weight is not model.weight
        assert torch.equal(one.weight.cpu(), model.weight.cpu())


def test_the_profiler_sees_the_calls() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        (torch.ones(3, device=DEVICE) + 1).cpu()
    assert "aten::add" in {event.key for event in profile.key_averages()}


def test_a_custom_operator_runs_on_the_host() -> None:
    library = torch.library.Library("fuse_readme", "FRAGMENT")
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: x * 3, "CompositeExplicitAutograd")
    assert torch.ops.fuse_readme.thrice(torch.arange(3.0, device=DEVICE)).tolist() == [0, 3, 6]


def test_what_is_missing_says_so() -> None:
    x = torch.ones(2, device=DEVICE)
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        x.numpy()
    assert fuse.stats()["operations"] > 0
