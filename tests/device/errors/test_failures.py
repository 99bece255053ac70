"""When a trace fails or is interrupted, the device goes on and nothing older is lost."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fuse
from fuse.device import lazy
from fuse.errors import ExecutionError, RescueWarning
from tests.device.helpers import DEVICE, compile_anew, failing, mode, recorder
from tests.lanes import only_in

pytestmark = only_in("compiled", "accelerator", reason="chunks that fail")


@pytest.fixture
def backend() -> Any:
    return lazy.engine().backend


def fail_once(monkeypatch: pytest.MonkeyPatch, backend: Any, method: str, error: Any) -> None:
    """The backend's ``method`` raises at its next call, and works afterwards."""
    original = getattr(backend, method)
    done = []

    def failing(*args: Any, **kwargs: Any) -> Any:
        if not done:
            done.append(True)
            raise error
        return original(*args, **kwargs)

    monkeypatch.setattr(backend, method, failing)


def fail_where(
    monkeypatch: pytest.MonkeyPatch, backend: Any, operator: str, error: Exception
) -> None:
    """Every chunk with this operator fails where it is run, from here on."""
    compile_anew(monkeypatch)
    original, broken = backend.compile, []

    def compiling(chunk: Any) -> Any:
        executable = original(chunk)
        if any(node.op == operator for node in chunk.nodes):
            broken.append(executable)
        return executable

    run = backend.execute

    def executing(executable: Any, *arguments: Any) -> Any:
        if any(executable is one for one in broken):
            raise error
        return run(executable, *arguments)

    monkeypatch.setattr(backend, "compile", compiling)
    monkeypatch.setattr(backend, "execute", executing)


@pytest.mark.parametrize("rounds", [1, 3, 6])
def test_only_what_depends_on_an_operation_that_fails_is_lost(
    monkeypatch: pytest.MonkeyPatch, backend: Any, rounds: int
):
    with recorder():
        fail_where(monkeypatch, backend, "erfinv", RuntimeError("no such thing"))
        for number in range(rounds):
            x, weights = torch.arange(3.0, device=DEVICE), torch.ones(3, device=DEVICE)
            bad = x.mul(0.25).erfinv() + number
            good = torch.cos(x * 2.0 + number)
            weights.add_(good)
            other = bad * 2
            noise = torch.rand(3, device=DEVICE)
            with pytest.raises(ExecutionError, match="no such thing") as caught:
                torch.tpu.synchronize()
            assert "erfinv" in str(caught.value)
            expected = torch.cos(torch.arange(3.0) * 2.0 + number)
            torch.testing.assert_close(good.cpu(), expected)
            torch.testing.assert_close(weights.cpu(), expected + 1)
            assert 0 < noise.sum().item() < 3
            for lost in (bad, other):
                with pytest.raises(RuntimeError, match="no such thing"):
                    lost.cpu()


def test_a_read_of_what_does_not_depend_on_the_failure_succeeds(
    monkeypatch: pytest.MonkeyPatch, backend: Any
):
    with recorder():
        fail_where(monkeypatch, backend, "erfinv", RuntimeError("no such thing"))
        x = torch.arange(3.0, device=DEVICE)
        bad, good = x.mul(0.25).erfinv(), x + 0.125
        assert good.tolist() == [0.125, 1.125, 2.125]
        with pytest.raises(RuntimeError, match=r"(?s)no such thing.*erfinv"):
            bad + good


def test_a_chunk_whose_operations_run_one_by_one_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, backend: Any
):
    x = torch.arange(3.0, device=DEVICE)
    torch.tpu.synchronize()
    y = (x * 2 + 1).cumsum(0)
    fail_once(monkeypatch, backend, "execute", MemoryError("no room for all"))
    before = fuse.stats()["rescued_traces"]
    with pytest.warns(RescueWarning, match="no room for all"):
        assert y.tolist() == [1.0, 4.0, 9.0]
    assert fuse.stats()["rescued_traces"] == before + 1


@pytest.mark.parametrize("chosen", ["debug", "strict", "fused"])
def test_a_failing_chunk_names_its_operations_and_lines(
    monkeypatch: pytest.MonkeyPatch, backend: Any, chosen: str
):
    x = torch.ones(3, device=DEVICE)
    x.cpu()
    with mode(chosen):
        fail_once(monkeypatch, backend, "execute", MemoryError("no room"))
        # An operation that no other test asks for: a line is that of its first sight.
        size = {"debug": 31, "strict": 37, "fused": 41}[chosen]
        with pytest.raises(ExecutionError, match="no room") as caught:
            x[:1].expand(size).mul(4).cpu()
        assert "mul.Tensor" in str(caught.value) and "test_failures.py:" in str(caught.value)
        assert x.mul(4).tolist() == [4, 4, 4]


def test_old_tensors_keep_their_values_and_lost_ones_say_why(backend: Any):
    x, z = torch.arange(3.0, device=DEVICE), torch.zeros(2, device=DEVICE)
    torch.tpu.synchronize()
    view = x[1:]
    x.add_(10)
    view.mul_(2)
    z += 1
    y = x * 2
    with (
        failing(backend, RuntimeError("the chunk broke")),
        pytest.raises(ExecutionError, match="the chunk broke"),
    ):
        y.cpu()
    assert x.tolist() == [0, 1, 2] and view.tolist() == [1, 2] and z.tolist() == [0, 0]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the chunk broke"):
            y.cpu()
        with pytest.raises(RuntimeError, match="the chunk broke"):
            (y + 1).cpu()
    assert (x + 1).tolist() == [1, 2, 3]


def test_a_failing_compile_is_tried_again(monkeypatch: pytest.MonkeyPatch, backend: Any):
    x = torch.ones(3, device=DEVICE)
    torch.tpu.synchronize()

    def program() -> list[float]:
        return (x.mul(1.23456).sinh() - 0.5).cosh().tolist()

    fail_once(monkeypatch, backend, "compile", ValueError("compiler out of ideas"))
    host = torch.ones(3)
    expected = (host.mul(1.23456).sinh() - 0.5).cosh().tolist()
    with pytest.warns(RescueWarning, match="compiler out of ideas"):
        torch.testing.assert_close(program(), expected)
    torch.testing.assert_close(program(), expected)


@pytest.mark.parametrize("method", ["execute", "compile"])
def test_an_interrupt_leaves_everything_in_place(
    monkeypatch: pytest.MonkeyPatch, backend: Any, method: str
):
    x = torch.ones(3, device=DEVICE)
    torch.tpu.synchronize()
    # A program for each of the two that nothing has compiled before.
    function = {"execute": torch.asinh, "compile": torch.atan}[method]
    y = function(x.mul(1.375))
    x.add_(1)
    fail_once(monkeypatch, backend, method, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        y.cpu()
    torch.testing.assert_close(y.cpu(), function(torch.full((3,), 1.375)))
    assert x.tolist() == [2, 2, 2]


def test_a_failure_inside_backward_and_a_step(backend: Any):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 3).to(DEVICE)
    before = model.weight.detach().cpu()

    def step() -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    with (
        failing(backend, RuntimeError("out of luck")),
        pytest.raises(ExecutionError, match="out of luck"),
    ):
        step()
    assert torch.equal(model.weight.detach().cpu(), before)
    assert step() > step() > step()


def test_an_error_in_a_hook_of_backward():
    x = torch.ones(3, device=DEVICE, requires_grad=True)

    def refuse(grad: torch.Tensor) -> None:
        raise LookupError("hook")

    y = x * 2
    y.register_hook(refuse)
    with pytest.raises(LookupError, match="hook"):
        y.sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


def test_an_unknown_value_cannot_become_nan_silently():
    """A poisoned tensor stays an error when it is moved into another operation's output."""
    x = torch.ones(2, device=DEVICE)
    x.cpu()
    with pytest.MonkeyPatch.context() as patch:
        fail_once(patch, lazy.engine().backend, "execute", RuntimeError("lost"))
        y = x + 5
        with pytest.raises(ExecutionError):
            torch.tpu.synchronize()
    with pytest.raises(RuntimeError, match="lost"):
        torch.cat([x, y]).cpu()
    with pytest.raises(RuntimeError, match="lost"):
        y[:1].item()
