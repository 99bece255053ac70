"""Threads: several record at once, one reads what another made, tensors die anywhere."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest
import torch

import fuse
from tests.device.helpers import DEVICE, mode

SECONDS = 120.0


def together(*bodies: Callable[[], None]) -> None:
    """Run every body in a thread of its own, to its end; the first error is raised here."""
    errors: list[BaseException] = []
    gate = threading.Barrier(len(bodies))

    def guarded(body: Callable[[], None]) -> None:
        try:
            gate.wait(SECONDS)
            body()
        except BaseException as error:  # noqa: BLE001  (raised again by the caller)
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a thread did not end"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("chosen", ["strict", "fused"])
def test_threads_record_side_by_side(chosen: str):
    results: dict[int, float] = {}

    def body(number: int) -> Callable[[], None]:
        def work() -> None:
            x = torch.full((4,), float(number), device=DEVICE)
            for _ in range(15):
                x = x * 0.5 + number
                x[0] = number
                if number % 2:
                    x.sum().item()
            results[number] = x.sum().item()

        return work

    with mode(chosen):
        together(*(body(number) for number in range(4)))
    for number, found in results.items():
        x = torch.full((4,), float(number))
        for _ in range(15):
            x = x * 0.5 + number
            x[0] = number
        assert found == pytest.approx(x.sum().item())


def test_training_in_two_threads():
    def train(device: torch.device) -> list[float]:
        generator = torch.Generator().manual_seed(1)
        w = torch.randn(3, 2, generator=generator).to(device).requires_grad_()
        x = torch.randn(5, 3, generator=generator).to(device)
        losses = []
        for _ in range(5):
            loss = (x @ w).square().mean()
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
            losses.append(loss.item())
        return losses

    expected, found = train(torch.device("cpu")), []
    together(*[lambda: found.append(train(DEVICE))] * 2)
    assert found[0] == pytest.approx(expected, rel=1e-4)
    assert found[1] == pytest.approx(expected, rel=1e-4)


def test_tensors_die_on_another_thread():
    held = [[torch.ones(8, device=DEVICE) * n for n in range(20)] for _ in range(3)]
    before = torch.tpu.memory_stats()["allocation.all.current"]

    def drop(row: list[torch.Tensor]) -> Callable[[], None]:
        def work() -> None:
            while row:
                row.pop()
            gc.collect()

        return work

    def record() -> None:
        x = torch.zeros(8, device=DEVICE)
        for _ in range(20):
            x = x + 1
            x.cpu()

    together(*(drop(row) for row in held), record)
    torch.tpu.synchronize()
    assert torch.tpu.memory_stats()["allocation.all.current"] <= before - 60 + 8


def test_a_mode_is_the_processs_and_not_the_threads():
    seen: list[str] = []
    with mode("strict"):
        together(lambda: seen.append(fuse.get_mode()))
    assert seen == ["strict"]


def test_synchronize_from_several_threads():
    def work() -> None:
        for _ in range(10):
            (torch.ones(3, device=DEVICE) + 1).relu()
            torch.tpu.synchronize()

    together(work, work, work)
