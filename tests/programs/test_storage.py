"""``.data``, ``detach``, ``set_``, shared storages, saving, loading and copying."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.device.helpers import DEVICE, recorder
from tests.programs.harness import compare_with_cpu

pytestmark = pytest.mark.usefixtures("mode")


def test_detach_and_data_share_memory():
    def program(device):
        x = torch.ones(3, device=device, requires_grad=True)
        x.data[1] = 5
        x.detach().mul_(2)
        y = x * x
        x.data = torch.full((3,), 4.0, device=device)
        y.sum().backward()
        return x, y, x.grad

    compare_with_cpu(program)


def test_data_of_another_shape():
    def program(device):
        x = torch.ones(3, device=device)
        x.data = torch.zeros(2, 2, device=device)
        x += 1
        return x

    compare_with_cpu(program)


def test_set_shares_a_storage():
    def program(device):
        x, y = torch.arange(6.0).to(device), torch.zeros(2, device=device)
        y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
        y.add_(10)
        z = torch.empty(0, device=device).set_(x)
        z[0] = -1
        same = y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        return x, y, z, same, x.untyped_storage().nbytes()

    compare_with_cpu(program)


def test_untyped_storage_is_made_resized_and_filled():
    def program(device):
        storage = torch.UntypedStorage(8, device=device.type)
        x = torch.empty(0, device=device).set_(storage, 0, (2,), (1,))
        x.copy_(torch.tensor([3.0, 4.0]))
        storage.resize_(16)
        y = torch.empty(0, device=device).set_(storage, 0, (4,), (1,))
        y[2:] = 1
        return x, y, storage.nbytes(), storage.size()

    compare_with_cpu(program)


def test_swapping_parameters_through_data():
    def program(device):
        a, b = nn.Linear(2, 2).to(device), nn.Linear(2, 2).to(device)
        a.weight.data, b.weight.data = b.weight.data, a.weight.data
        a.bias.data.copy_(b.bias.data)
        x = torch.ones(1, 2, device=device)
        return a(x), b(x)

    compare_with_cpu(program)


def test_a_file_keeps_shared_storages(tmp_path: Path):
    def program(device):
        x = torch.arange(6.0).to(device)
        path = tmp_path / f"{device.type}.pt"
        torch.save({"x": x, "part": x[2:4], "half": x.half(), "p": nn.Parameter(x)}, path)
        here = torch.load(path)
        home = torch.load(path, map_location="cpu")
        here["part"].mul_(10)
        assert here["x"].device.type == device.type
        assert {value.device.type for value in home.values()} == {"cpu"}
        return here, home

    compare_with_cpu(program)


@pytest.mark.parametrize("location", ["tpu", "tpu:0", torch.device("tpu", 0), {"cpu": "tpu"}])
def test_a_file_from_the_cpu_is_loaded_on_the_device(location, tmp_path: Path):
    path = tmp_path / "model.pt"
    model = nn.Linear(3, 2)
    torch.save(model.state_dict(), path)
    loaded = torch.load(path, map_location=location)
    assert {value.device.type for value in loaded.values()} == {"tpu"}
    torch.testing.assert_close({k: v.cpu() for k, v in loaded.items()}, dict(model.state_dict()))


def test_a_whole_module_is_saved_and_pickled():
    def program(device):
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(device)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        x = torch.randn(4, 2).to(device)
        return model(x), loaded(x), pickle.loads(pickle.dumps(model[0].weight))

    compare_with_cpu(program)


def test_deepcopy_is_independent():
    def program(device):
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(device)
        x = torch.randn(4, 2).to(device)
        twin = copy.deepcopy(model)
        model(x).square().sum().backward()
        with torch.no_grad():
            model[0].weight.zero_()
        pair = torch.zeros(4, device=device)
        shared = copy.deepcopy({"a": pair, "b": pair[1:]})
        shared["b"].add_(1)
        return twin(x), twin[0].weight.grad, model(x), shared, pair

    compare_with_cpu(program)


def test_modules_move_back_and_forth():
    def program(device):
        model = nn.Linear(2, 2).to(device)
        model(torch.ones(1, 2, device=device)).sum().backward()
        model.cpu()
        with torch.no_grad():
            model.weight += 1
        model.to(device)
        return model.weight, model.weight.grad, model.weight.device.type == device.type

    compare_with_cpu(program)


def test_a_tensor_outlives_its_base():
    def program(device):
        def part():
            whole = torch.arange(10.0).to(device) * 2
            return whole[3:5]

        parts = [part() for _ in range(3)]
        parts[0].add_(parts[1])
        return parts

    compare_with_cpu(program)


def test_memory_layouts_survive_a_clone():
    def program(device):
        x = torch.randn(2, 3, 4).to(device).transpose(1, 2)
        kept = x.clone()
        made = x.contiguous()
        like = torch.zeros_like(x)
        strides = [t.stride() for t in (x, kept, made, like, x.to(torch.float64), x + 1)]
        return kept, made, strides

    compare_with_cpu(program)


def test_memory_that_nothing_wrote_to_and_that_dead_code_read_first():
    def program(device):
        x = torch.empty(3, device=device)
        x * 2  # nothing reads the product: its operation goes, and with it the first use of x
        y = torch.zeros_like(x) * x.isnan()
        return y + 1

    compare_with_cpu(program)


def test_a_grown_storage_run_again_and_again(mode: str) -> None:
    """From the fifth time on such calls run uncompiled, and meet the storage as it has grown."""

    def grown(x: torch.Tensor) -> list[object]:
        x = x.clone().resize_(6)
        x.view(-1)[4:] = 1
        first = x.tolist()
        return [first, x[:4].view(1, 4).sum().item(), (x.view(2, 3) * 2).tolist()]

    def other_dtype(x: torch.Tensor) -> list[object]:
        x = x.clone().resize_(3, 2)
        x.view(torch.int32)[2] = 7
        x[1].mul_(2)
        x.view(torch.int16).tolist()
        return [x.view(torch.int32)[2].tolist(), x[:2].sum().item(), x.t().flatten().tolist()[:2]]

    def inside(x: torch.Tensor) -> list[object]:
        x = x.clone()
        y = x[1:3].resize_(2, 3)
        y[1] = 5
        x.sum().item()
        return [y.tolist()[1], (x + 1).tolist(), x.untyped_storage().nbytes()]

    with recorder(tier="uncompiled"):
        for program in (grown, other_dtype, inside):
            expected = program(torch.arange(4.0))
            for _ in range(8):
                assert program(torch.arange(4.0).to(DEVICE)) == expected
