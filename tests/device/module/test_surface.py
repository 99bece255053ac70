"""Whatever is called of a device's surface: a result, or an exception that says something."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from fuse.errors import UnsupportedError
from tests.device.helpers import DEVICE, finish, run, start
from tests.device.module import surface
from tests.marks import slow_but


def check(when: str, subject: str) -> None:
    process = start(f"from tests.device.module.surface import main; main({when!r}, {subject!r})")
    out, errors = finish(process)
    called = out.rstrip().splitlines()
    assert process.returncode == 0, f"ended with {process.returncode} in {called[-1:]}:\n{errors}"
    assert len(called) > 10 and not [one for one in called if one.startswith("WRONG")]


@pytest.mark.parametrize("subject", slow_but(["untyped", "typed", "tensor"], surface.SUBJECTS))
def test_calls_after_the_first_use(subject: str) -> None:
    check("after", subject)


@pytest.mark.parametrize("subject", slow_but(["first uses"], surface.BEFORE))
def test_calls_that_are_the_first_use(subject: str) -> None:
    check("before", subject)


def test_a_slice_of_a_storage_is_refused_with_a_hint() -> None:
    storage = torch.arange(4.0).to(DEVICE).untyped_storage()
    for part in (slice(1, 3), slice(0, 4), slice(None)):
        with pytest.raises(UnsupportedError) as raised:
            storage[part]
        text = str(raised.value)
        assert "a slice of a storage shares its memory" in text and "storage.cpu()" in text
        assert f"16 bytes, {part}" in text and "test_surface.py" in text
    assert storage.tolist() == torch.arange(4.0).untyped_storage().tolist()


def test_a_storage_made_of_an_address_is_refused() -> None:
    x = torch.arange(4.0).to(DEVICE)
    made = torch._C._construct_storage_from_data_pointer(x.data_ptr(), x.device, 8)
    foreign = torch.empty(0, device=DEVICE).set_(made)
    refused = "this storage on the tpu device was made of an address"
    for use in (foreign.tolist, lambda: foreign + 1, lambda: foreign.fill_(2), foreign.cpu):
        with pytest.raises(RuntimeError, match=refused):
            use()
    with pytest.raises(RuntimeError, match=refused):
        made.resize_(32)
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.int16, torch.float32, torch.complex64, torch.bool])
def test_bytes_are_swapped(dtype: torch.dtype) -> None:
    def swapped(device: Any) -> list[int]:
        x = torch.arange(4).to(dtype).to(device)
        x.untyped_storage().byteswap(dtype)
        return x.untyped_storage().tolist()

    assert swapped(DEVICE) == swapped("cpu")


def test_a_storage_is_written_to_a_file_and_read() -> None:
    file = io.BytesIO()
    torch.arange(4.0).to(DEVICE).untyped_storage()._write_file(file, False, True, 4)
    file.seek(0)
    x = torch.zeros(4, device=DEVICE)
    assert x.untyped_storage()._set_from_file(file, None, False, 4).device.type == "tpu"
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("mode")
def test_a_lazy_clone_is_a_copy() -> None:
    def program(device: Any) -> list[Any]:
        found = []
        for base in (
            torch.arange(6.0),
            torch.arange(6.0).view(2, 3).t()[1:],
            torch.ones(1).expand(3),
        ):
            x = base.to(device) if base.is_contiguous() else base.clone().to(device)
            x.requires_grad_()
            copy = x._lazy_clone()
            assert copy.stride() == x.stride()
            with torch.no_grad():
                for _ in range(3):
                    copy.add_(1)
                    x.mul_(2)
            copy.sum().backward()
            found += [x.tolist(), copy.tolist(), x.grad.tolist()]
        y = torch.zeros(4, device=device)
        ends = y[1:]._lazy_clone()
        y.resize_(8)
        ends.fill_(3)
        return [*found, y[:4].tolist(), ends.tolist(), ends.untyped_storage().nbytes()]

    for _ in range(7):
        assert program(DEVICE) == program("cpu")


@pytest.mark.parametrize("size", [-1, 1 << 62])
def test_a_size_that_cannot_be_changes_nothing(size: int) -> None:
    x = torch.arange(4.0).to(DEVICE)
    expected = "negative dimension -1" if size < 0 else "overflow"
    with pytest.raises(RuntimeError, match=expected):
        x.resize_(size)
    with pytest.raises((RuntimeError, OverflowError)):
        x.untyped_storage().resize_(size)
    assert x.tolist() == [0, 1, 2, 3] and x.untyped_storage().nbytes() == 16


EARLY = """
import torch
host = torch.arange(1 << 21, dtype=torch.float32).pin_memory()
assert host.is_pinned() and not torch.tpu.is_initialized()
moved = host.to("tpu", non_blocking=True)
import fuse
print(fuse.stats()["copies_beside"], (moved + 1).cpu()[-1].item() == host[-1].item() + 1)
del host, moved
print(torch.ones(3).is_pinned())
"""


def test_what_is_pinned_before_the_start_is_copied_beside_the_program() -> None:
    assert run(EARLY).split() == ["1", "True", "False"]


def test_the_check_itself_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert surface.wrong("untyped", "pin_memory", ()) == ""
    monkeypatch.delitem(surface.REFUSED, "pin_memory")
    assert "can be pinned" in surface.wrong("untyped", "pin_memory", ())
    monkeypatch.setattr(
        torch.UntypedStorage, "tolist", lambda storage: [storage.device.type == "cpu"]
    )
    assert "[False]" in surface.wrong("untyped", "tolist", ())


FIRST_USES = {
    "a stream": """
one, other = torch.Stream("tpu"), torch.Stream(device="tpu:0")
assert one != other and one.device_index == 0 and isinstance(one, torch.Stream)
event = one.record_event()
event.synchronize()
assert event.query() and event.event_id != 0
""",
    "an event that times": """
first = torch.Event("tpu", enable_timing=True)
x = torch.ones(3, device="tpu")
first.record()
last = torch.Event(enable_timing=True)
last.record()
last.synchronize()
assert first.elapsed_time(last) >= 0 and isinstance(first, torch.Event)
""",
    "a device that is not there": """
try:
    torch.Stream("tpu:7")
except RuntimeError as error:
    assert "invalid tpu device index 7" in str(error)
else:
    raise AssertionError
""",
    "a class of the program's own": """
class Mine(torch.Stream):
    pass

mine = Mine("tpu")
assert type(mine) is Mine and isinstance(mine, torch.Stream)
assert not isinstance(torch.Stream("tpu"), Mine) and issubclass(Mine, torch.Stream)
""",
    "what is the CPU's": """
assert torch.Generator().device.type == "cpu" and isinstance(torch.Generator(), torch.Generator)
assert torch.Stream("cpu").device.type == "cpu" and not torch.tpu.is_initialized()
before = torch.Stream, torch.Event, torch.Generator
assert issubclass(torch.tpu.Stream, torch.Stream) and issubclass(torch.tpu.Event, torch.Event)
torch.tpu.init()
for stood_in, own in zip(before, (torch.Stream, torch.Event, torch.Generator)):
    assert stood_in is not own and issubclass(stood_in, own) and own.__name__ == stood_in.__name__
""",
}


@pytest.mark.parametrize("name", FIRST_USES)
def test_streams_and_events_may_be_a_programs_first_use(name: str) -> None:
    run(f"import torch\n{FIRST_USES[name]}")


def test_memory_that_was_never_made_is_not_read() -> None:
    """A functional tensor's storage has a size and no bytes."""
    x = torch.zeros(1, device=DEVICE)
    torch._enable_functionalization(reapply_views=True)
    try:
        storage = torch._to_functional_tensor(x).untyped_storage()
    finally:
        torch._disable_functionalization()
    assert storage.nbytes() == 4 and storage.device.type == "tpu"
    for _ in range(3):
        with pytest.raises(RuntimeError, match="its data is not allocated yet"):
            storage[0]
