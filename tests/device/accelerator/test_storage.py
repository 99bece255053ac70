"""Storages of the device in files, in copies between devices, and in tensors that change places."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from tests.device.helpers import DEVICE
from tests.programs.harness import compare_with_cpu


def saved(value: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


def test_a_storage_is_tagged_by_its_device():
    for device in ("tpu", "tpu:0", DEVICE):
        storage = torch.UntypedStorage(4, device=device)
        assert torch.serialization.location_tag(storage) == "tpu:0"
    host = torch.arange(4.0).untyped_storage()
    moved = torch.serialization.default_restore_location(host, "tpu:0")
    assert moved.is_tpu and moved.tolist() == host.tolist()


LOADS: dict[str, tuple[dict[str, Any], str]] = {
    "as it was": ({}, "tpu"),
    "whole objects": ({"weights_only": False}, "tpu"),
    "on the host": ({"map_location": "cpu"}, "cpu"),
    "by a function": ({"map_location": lambda storage, tag: storage.tpu()}, "tpu"),
    "by a function that leaves it": ({"map_location": lambda storage, tag: storage}, "cpu"),
    "by the tag": ({"map_location": {"tpu:0": "cpu"}}, "cpu"),
    "of another tag": ({"map_location": {"cuda:0": "cpu"}}, "tpu"),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", LOADS)
def test_a_file_is_read_to_where_a_program_says(name: str, legacy: bool):
    options, place = LOADS[name]
    x = torch.arange(6.0).view(2, 3)
    file = saved({"x": x.to(DEVICE)}, _use_new_zipfile_serialization=not legacy)
    found = torch.load(file, **options)["x"]
    assert found.device.type == place and torch.equal(found.cpu(), x)


def test_a_file_is_mapped_into_memory(tmp_path: Path):
    path = tmp_path / "x.pt"
    torch.save(torch.arange(6.0).to(DEVICE)[1:4], path)
    for place in ("cpu", "tpu"):
        found = torch.load(path, mmap=True, map_location=place)
        assert found.device.type == place and found.tolist() == [1, 2, 3]
        assert found.untyped_storage().nbytes() == 24


def test_a_file_of_a_device_that_is_not_there_is_refused():
    file = saved(torch.ones(2, device=DEVICE))
    with pytest.raises(RuntimeError, match="on TPU device 5 but torch.tpu.device_count"):
        torch.load(file, map_location="tpu:5")


def test_a_file_may_leave_the_data_out():
    x = torch.arange(6.0).to(DEVICE)
    with torch.serialization.skip_data():
        file = saved({"x": x})
    found = torch.load(file)["x"]
    assert found.shape == x.shape and found.device == x.device
    assert found.untyped_storage().nbytes() == 24 and x.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_older_files_name_is_still_read():
    array = numpy.array([[1, 2, 3], [4, 5, 6]], dtype=numpy.float32)
    found = torch._utils._rebuild_device_tensor_from_numpy(array, torch.float32, "tpu:0", True)
    assert found.device == torch.device("tpu", 0) and found.requires_grad
    assert found.tolist() == array.tolist()


def test_bytes_are_copied_between_devices():
    values = list(range(12))
    host, here = torch.UntypedStorage(values), torch.UntypedStorage(values, device=DEVICE)
    targets = [torch.UntypedStorage(12), torch.UntypedStorage(12, device=DEVICE)]
    for source in (host, here):
        for target in targets:
            assert target.fill_(7).tolist() == [7] * 12
            assert target.copy_(source).tolist() == values
    targets[1][3] = 99
    assert here.tolist() == host.tolist() == values and targets[1].tolist()[3] == 99
    assert here.tpu() is here and here.cpu().tolist() == values
    with pytest.raises(RuntimeError, match="size does not match"):
        here.copy_(torch.UntypedStorage(4))


def test_a_storage_of_a_file_is_moved(tmp_path: Path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(8)))
    mapped = torch.UntypedStorage.from_file(str(path), shared=True, nbytes=8)
    moved = mapped.tpu()
    moved.fill_(1)
    assert mapped.tolist() == list(range(8)) and mapped.to(device=DEVICE).is_tpu
    assert moved.filename is None and mapped.filename == str(path)


def test_a_storage_that_was_given_up_is_filled_anew():
    def program(device):
        x = torch.arange(4.0).to(device)
        found = []
        for turn in range(6):
            view, storage = x[1:3], x.untyped_storage()
            storage.resize_(0)
            size = storage.nbytes(), x.shape, view.shape
            storage.resize_(16)
            x.copy_(torch.arange(4.0) + turn)
            found.append((size, x.clone(), view + 1))
        return found

    compare_with_cpu(program)


def other_device(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(3, device=DEVICE if x.device.type == "cpu" else "cpu")


MIXED: dict[str, Callable[[torch.Tensor], object]] = {
    "a storage": lambda x: x.set_(other_device(x).untyped_storage()),
    "a tensor": lambda x: x.set_(other_device(x)),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("place", ["cpu", "tpu"])
def test_a_tensor_takes_no_storage_of_another_device(name: str, place: str):
    x = torch.zeros(2, device=place)
    with pytest.raises(RuntimeError, match="to a storage on different device"):
        MIXED[name](x)
    assert x.tolist() == [0, 0]


def test_tensors_of_two_devices_change_places():
    x, y = torch.arange(3.0).to(DEVICE), torch.zeros(2, requires_grad=True)
    view_of, strides = x.untyped_storage().data_ptr(), x.stride()
    torch.utils.swap_tensors(x, y)
    assert (x.device.type, y.device.type) == ("cpu", "tpu")
    assert x.requires_grad and not y.requires_grad
    assert y.untyped_storage().data_ptr() == view_of and y.stride() == strides
    y.add_(1)
    (x * 2).sum().backward()
    assert y.tolist() == [1, 2, 3] and x.grad.tolist() == [2, 2]
