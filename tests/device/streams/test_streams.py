"""Streams: a thread has its own, programs make more, and what they share orders them by itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from fuse.device import lazy
from fuse.errors import ExecutionError
from tests.device.helpers import DEVICE, compile_anew, failing, made, mode, recorder, run
from tests.device.streams.test_threads import SECONDS, together
from tests.lanes import only_in

SIZES = ((8, 16, 4), (12, 24, 3), (6, 10, 2), (20, 9, 5))
STEPS = 30


def train(number: int, device: torch.device | str, steps: int = STEPS) -> list[float]:
    """The losses of every third step of a small model, one of four."""
    inner, hidden, outer = SIZES[number]
    generator = torch.Generator().manual_seed(number)
    model = nn.Sequential(nn.Linear(inner, hidden), nn.ReLU(), nn.Linear(hidden, outer))
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator) * 0.3)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        x = torch.randn(16, inner, generator=generator).to(device)
        target = torch.randn(16, outer, generator=generator).to(device)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        if step % 3 == 2:
            losses.append(loss.item())
    return losses


def cuts(reason: str) -> int:
    """Traces cut for this reason so far."""
    return int(fuse.stats()["cuts"].get(reason, 0))


def in_thread(body: Callable[[], None]) -> None:
    """Run it to its end in another thread."""
    together(body)


@pytest.mark.parametrize("threads", [1, 2, 4])
@only_in("compiled", "accelerator", reason="when a segment is recorded is else a matter of times")
def test_threads_that_train_different_models_compile_what_the_models_do(
    threads: int, monkeypatch: pytest.MonkeyPatch
):
    compile_anew(monkeypatch)
    with recorder():
        before = made()
        for number in range(threads):
            train(number, DEVICE)
        one_after_the_other, calls = made() - before, fuse.stats()["known_calls"]
    compile_anew(monkeypatch)
    found: dict[int, list[float]] = {}

    def body(number: int) -> Callable[[], None]:
        return lambda: found.update({number: train(number, DEVICE)})

    with recorder():
        before = made()
        together(*(body(number) for number in range(threads)))
        assert made() - before <= one_after_the_other
        assert fuse.stats()["known_calls"] == calls
    for number, losses in found.items():
        assert losses == pytest.approx(train(number, "cpu"), rel=1e-3, abs=1e-5)


def test_known_streams_of_several_threads_make_nothing_new():
    def round_of_threads() -> None:
        bodies: list[Callable[[], None]] = [lambda n=n: found[n].append(train(n, DEVICE, 9))
                                            for n in range(4)]  # fmt: skip
        together(*bodies)

    with recorder(tier="compiled"):  # when a segment is first recorded is else a matter of times
        found: list[list[list[float]]] = [[] for _ in SIZES]
        round_of_threads()
        round_of_threads()
        known, executables = fuse.stats()["known_calls"], made()
        for _ in range(4):  # the third to the sixth: what is ahead is started from the fifth on
            round_of_threads()
        assert fuse.stats()["known_calls"] == known
        assert made() == executables
    for number, runs in enumerate(found):
        expected = train(number, "cpu", 9)
        for losses in runs:
            assert losses == pytest.approx(expected, rel=1e-3, abs=1e-5)


@only_in("compiled", "accelerator", reason="when a segment is recorded is else a matter of times")
def test_equal_programs_on_several_threads_share_what_is_made(monkeypatch: pytest.MonkeyPatch):
    compile_anew(monkeypatch)
    with recorder():
        before = made()
        train(0, DEVICE)
        alone, known = made() - before, fuse.stats()["known_calls"]
        together(*[lambda: train(0, DEVICE)] * 3)
        assert made() - before == alone
        assert fuse.stats()["known_calls"] == known


def test_threads_that_read_the_same_weights_do_not_cut_each_other():
    weights = torch.randn(4, 4)
    shared = weights.to(DEVICE)
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    before = cuts("other_stream")

    def serve() -> None:
        for _ in range(20):
            x = torch.randn(2, 4)
            y = torch.tanh(torch.tanh(x.to(DEVICE) @ shared) @ shared)
            found.append((y.cpu(), torch.tanh(torch.tanh(x @ weights) @ weights)))

    together(*[serve] * 4)
    assert len(found) == 80
    for result, expected in found:
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    assert cuts("other_stream") == before


@pytest.mark.parametrize("chosen", ["strict", "fused"])
def test_what_one_thread_has_recorded_another_reads_and_computes_with(chosen: str):
    made_here: list[torch.Tensor] = []
    with mode(chosen):
        mine = torch.ones(3, device=DEVICE) * 2
        in_thread(lambda: made_here.append(torch.arange(3.0, device=DEVICE) * 3 + mine))
        (other,) = made_here
        assert (other * 2 + mine).tolist() == [6.0, 12.0, 18.0]
        assert other.tolist() == [2.0, 5.0, 8.0]


@only_in("compiled", "accelerator", reason="counts traces")
def test_reading_on_the_host_hands_on_the_stream_that_made_it_and_no_other():
    torch.tpu.synchronize()
    held: list[torch.Tensor] = []
    mine = torch.ones(3, device=DEVICE) + 1
    in_thread(lambda: held.append(torch.ones(3, device=DEVICE) + 2))
    before = fuse.stats()["traces"]
    assert held[0].tolist() == [3.0] * 3
    assert fuse.stats()["traces"] == before + 1
    assert mine.tolist() == [2.0] * 3
    assert fuse.stats()["traces"] == before + 2


# ---- streams that a program makes: one thread, so that the order is known ----------------------


def test_a_thread_has_its_own_current_stream_and_chooses_another():
    seen: list[torch.Stream] = []
    own = torch.tpu.current_stream()
    side, other = torch.tpu.Stream(), torch.Stream(device="tpu")
    assert len({own, side, other}) == 3
    with torch.tpu.stream(side):
        assert torch.tpu.current_stream() == side
        in_thread(lambda: seen.append(torch.tpu.current_stream()))
        with other, torch.tpu.stream(None):
            assert torch.tpu.current_stream() == other
        assert torch.accelerator.current_stream() == side
    assert torch.tpu.current_stream() == own
    assert seen[0] not in (own, side, other)
    torch.tpu.set_stream(side)
    assert torch.tpu.current_stream() == side
    torch.tpu.set_stream(own)
    in_thread(lambda: seen.append(torch.tpu.default_stream()))
    assert seen[1] == torch.tpu.default_stream()


def test_a_stream_reads_what_was_there_when_it_read():
    side = torch.tpu.Stream()
    x = torch.arange(4.0, device=DEVICE)
    before = x * 10
    with torch.tpu.stream(side):
        seen = x + 0.5
        x.mul_(2)  # main has read it and not been handed on
        doubled = x + 0.25
    after = x - 1
    with torch.tpu.stream(side):
        x.add_(100)
    assert before.tolist() == [0.0, 10.0, 20.0, 30.0]
    assert seen.tolist() == [0.5, 1.5, 2.5, 3.5]
    assert doubled.tolist() == [0.25, 2.25, 4.25, 6.25]
    assert after.tolist() == [-1.0, 1.0, 3.0, 5.0]
    assert x.tolist() == [100.0, 102.0, 104.0, 106.0]


def test_streams_take_turns_with_one_tensor():
    streams = [torch.tpu.Stream() for _ in range(3)]
    x, expected = torch.zeros(3, device=DEVICE), torch.zeros(3)
    kept = []
    for turn in range(12):
        with torch.tpu.stream(streams[turn % 3]):
            kept.append((x * 2 + turn, expected * 2 + turn))
            x[turn % 3] += turn
            expected[turn % 3] += turn
            if turn == 7:
                x.copy_(torch.tensor([1.0, 2.0, 3.0]))  # from the host, past all that is recorded
                expected = torch.tensor([1.0, 2.0, 3.0])
    assert x.tolist() == expected.tolist()
    for result, wanted in kept:
        assert result.tolist() == wanted.tolist()


@pytest.mark.parametrize("rounds", [1, 3, 6])
def test_a_number_begins_to_vary_while_another_stream_stands_past_it(rounds: int):
    side = torch.tpu.Stream()
    with recorder():
        for turn in range(rounds):
            x = torch.arange(3.0, device=DEVICE)
            with torch.tpu.stream(side):
                first = (x * 2.0 + torch.rand(3, device=DEVICE)) * 3.0 + 0.25
            second = (x * (2.5 + turn) + torch.rand(3, device=DEVICE)) * 4.0 - 0.5
            with torch.tpu.stream(side):
                first = first * 5.0
            for result, low, scale, factor in (
                (first, 1.25, 2.0, 15.0),
                (second, -0.5, 2.5 + turn, 4.0),
            ):
                width = 15.0 if result is first else 4.0
                rest = result.cpu() - torch.arange(3.0) * scale * factor - low
                assert (rest >= 0).all() and (rest < width).all() and rest.std() > 0


@only_in("compiled", "accelerator", reason="counts traces")
def test_a_stream_and_an_event_hand_on_what_is_theirs_alone():
    torch.tpu.synchronize()
    side = torch.tpu.Stream()
    main = torch.ones(3, device=DEVICE) + 1
    with torch.tpu.stream(side):
        x = torch.ones(3, device=DEVICE) + 2
        event = torch.tpu.Event().record()
        later = x * 2
    before = fuse.stats()["traces"]
    main_event = torch.tpu.current_stream().record_event()
    side.wait_event(main_event)
    side.wait_stream(torch.tpu.current_stream())
    main.record_stream(side)
    assert fuse.stats()["traces"] == before
    event.synchronize()
    assert fuse.stats()["traces"] == before + 1
    side.synchronize()  # nothing is left there
    assert fuse.stats()["traces"] == before + 1
    while not main_event.query():
        pass
    assert fuse.stats()["traces"] == before + 2
    assert (main.tolist(), later.tolist()) == ([2.0] * 3, [6.0] * 3)


@only_in("compiled", "accelerator", reason="counts traces")
def test_synchronising_the_device_hands_on_every_stream():
    torch.tpu.synchronize()
    held = [torch.ones(2, device=DEVICE) + 1]
    with torch.tpu.stream(torch.tpu.Stream()):
        held.append(torch.ones(2, device=DEVICE) + 2)
    in_thread(lambda: held.append(torch.ones(2, device=DEVICE) + 3))
    before = fuse.stats()["traces"]
    torch.tpu.synchronize()
    assert fuse.stats()["traces"] == before + 3
    assert [x.tolist() for x in held] == [[2.0] * 2, [3.0] * 2, [4.0] * 2]


def test_a_backward_pass_runs_on_the_stream_of_its_forward():
    side = torch.tpu.Stream()
    own = torch.tpu.current_stream()
    seen: list[torch.Stream] = []

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 3

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            seen.append(torch.tpu.current_stream())
            return gradient * 3

    x = torch.arange(3.0, device=DEVICE, requires_grad=True)
    with torch.tpu.stream(side):
        loss = Noted.apply(x).square().sum()  # type: ignore[no-untyped-call]
    loss.backward()
    y = torch.arange(3.0, device=DEVICE, requires_grad=True)
    in_thread(Noted.apply(y).sum().backward)  # type: ignore[no-untyped-call]
    assert seen == [side, own]
    assert x.grad is not None and x.grad.tolist() == [0.0, 18.0, 36.0]
    assert y.grad is not None and y.grad.tolist() == [3.0] * 3
    assert torch.tpu.current_stream() == own


@only_in("compiled", "accelerator", reason="a chunk that fails or stops")
def test_a_chunk_that_fails_takes_nothing_of_other_streams():
    side = torch.tpu.Stream()
    x = torch.arange(3.0, device=DEVICE)
    with torch.tpu.stream(side):
        good = x * 2
    bad = x * 3 + 1
    with (
        failing(lazy.engine().backend, RuntimeError("the chunk broke")),
        pytest.raises(ExecutionError, match="the chunk broke"),
    ):
        bad.cpu()
    with torch.tpu.stream(side):
        with pytest.raises(RuntimeError, match="the chunk broke"):
            bad + good
        assert (good + x).tolist() == [0.0, 3.0, 6.0]


@only_in("compiled", "accelerator", reason="a chunk that fails or stops")
def test_the_device_goes_on_where_another_stream_fails_for_a_reader():
    side = torch.tpu.Stream()
    x = torch.arange(3.0, device=DEVICE)
    with torch.tpu.stream(side):
        bad = x.sin() * 3
    mine = x * 5
    with (
        failing(lazy.engine().backend, RuntimeError("the chunk broke")),
        pytest.raises(ExecutionError, match="the chunk broke"),
    ):
        torch.stack([mine, x, bad])
    assert torch.stack([mine, x]).tolist() == [[0.0, 5.0, 10.0], [0.0, 1.0, 2.0]]


@only_in("compiled", "accelerator", reason="counts traces")
def test_known_calls_are_forgotten_under_open_traces():
    side = torch.tpu.Stream()
    core = lazy.core()
    with recorder(limit=50):
        core.set_most_nodes(10)
        try:
            with torch.tpu.stream(side):
                x = torch.arange(4.0, device=DEVICE).sin()
            before = fuse.stats()["prunes"]
            for size in range(2, 30):
                (torch.ones(size, device=DEVICE) * size).sum().item()
            assert fuse.stats()["prunes"] > before
            with torch.tpu.stream(side):
                assert (x * 2).tolist() == pytest.approx((torch.arange(4.0).sin() * 2).tolist())
                y = x + 1
            core.forget()
            assert (y - 1).tolist() == pytest.approx(torch.arange(4.0).sin().tolist())
        finally:
            core.set_most_nodes(500000)


def test_threads_that_have_ended_leave_their_streams_to_others():
    torch.tpu.synchronize()
    streams: set[int] = set()
    held: list[torch.Tensor] = []

    def body() -> None:
        streams.add(torch.tpu.current_stream().stream_id)
        held.append(torch.full((2,), float(len(held)), device=DEVICE) + 1)

    for _ in range(20):
        in_thread(body)
    assert len(streams) == 20  # a number names one thread's
    assert fuse.stats()["streams"] < 60
    assert [x.tolist() for x in held] == [[n + 1.0] * 2 for n in range(20)]


def test_graphs_compiled_by_torch_compile_run_in_several_threads():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(DEVICE)
    plain = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    plain.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend="tpu")
    with torch.no_grad():
        compiled(torch.ones(3, 4, device=DEVICE))
    found: list[tuple[torch.Tensor, torch.Tensor]] = []

    def serve() -> None:
        with torch.no_grad():
            for _ in range(10):
                x = torch.randn(3, 4)
                found.append((compiled(x.to(DEVICE)).cpu(), plain(x)))

    together(*[serve] * 3)
    assert len(found) == 30
    for result, expected in found:
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


EXITS = """
import atexit, sys, threading, torch
x = torch.ones(3, device="tpu") * 2
side = torch.tpu.Stream()
with torch.tpu.stream(side):
    y = x + 1
held = []
def forever():
    while True:
        held.append(torch.ones(3, device="tpu") * 3)
        del held[:-3]
thread = threading.Thread(target=lambda: held.append(x + y))
thread.start()
thread.join()
kept = held[0]
threading.Thread(target=forever, daemon=True).start()
while len(held) < 3:
    pass
atexit.register(lambda: print(x.tolist(), y.tolist(), kept.tolist()))
sys.exit(3)
"""


def test_a_process_ends_with_unfinished_work_on_several_streams():
    wrapped = (
        f"import json\ntry:\n    exec({EXITS!r})\nexcept SystemExit as e:\n    assert e.code == 3"
    )
    out = run(wrapped).strip()
    assert json.loads(f"[{out.replace('] [', '], [')}]") == [[2.0] * 3, [3.0] * 3, [5.0] * 3]


@only_in("compiled", "accelerator", reason="a chunk that fails or stops")
def test_waiting_for_a_reader_does_not_stop_another_thread():
    """A thread that records goes on while others record, read and are waited for."""
    done = threading.Event()
    counted = [0]

    def record() -> None:
        x = torch.zeros(4, device=DEVICE)
        while not done.is_set():
            x = x + 1
            counted[0] += 1
            if counted[0] % 50 == 0:
                x.cpu()

    def read() -> None:
        try:
            for size in range(1, 12):
                (torch.ones(size, device=DEVICE) * 2).cpu()
                torch.tpu.synchronize()
        finally:
            done.set()

    together(record, read)
    assert done.wait(SECONDS) and counted[0] > 0
