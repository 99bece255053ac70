"""What the platform's compiler refuses runs on the host: right at once, said once, never asked
about again, and nothing else is lost for it."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fuse
from fuse.backends.base import Chunk
from fuse.device import lazy
from fuse.engine.support_cache import SupportCache
from fuse.errors import ExecutionError, HostFallbackError
from fuse.trace.node import Node
from tests.device.helpers import DEVICE, compile_anew, mode, recorder
from tests.lanes import only_in

pytestmark = pytest.mark.refused

SECONDS = 60.0
WORDS = "UNIMPLEMENTED: the platform has none"


class Refusing:
    """A compiler that refuses chunks with certain operations.

    Attributes:
        chunks: how many it has refused.
        error: what it raises.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        engine = lazy.engine()
        self.backend, self.planning = engine.backend, engine.planning
        self.chunks = 0
        self.error: Exception = RuntimeError(f"{WORDS}\nmodule @jit_run")
        self._refuses: Callable[[Node], bool] = lambda node: False
        self._compile = self.backend.compile
        compile_anew(patch)
        patch.setattr(self.backend, "compile", self._compiled)
        patch.setattr(self.backend, "workers", lambda: None)  # which do not know of this one
        patch.setattr(
            self.planning, "support", SupportCache(self.backend, engine.executables.cache)
        )
        patch.setattr(self.planning, "presumed", self.planning._presuming())

    def refuse(self, refuses: Callable[[Node], bool]) -> None:
        self._refuses = refuses

    def _compiled(self, chunk: Chunk) -> Any:
        if any(map(self._refuses, chunk.nodes)):
            self.chunks += 1
            raise self.error
        return self._compile(chunk)

    def settle(self) -> None:
        """Return once nothing is compiled in the background."""
        deadline = time.monotonic() + SECONDS
        while not self.planning.compiler.is_idle() and time.monotonic() < deadline:
            time.sleep(0.001)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusing]:
    torch.tpu.init()
    monkeypatch.delenv("FUSE_HOST_FALLBACK", raising=False)
    with recorder(tier="compiled"):
        made = Refusing(monkeypatch)
        yield made
        made.settle()
    lazy.core().forget()  # with the descriptions of calls that were sent to the host
    lazy.engine().forget()


def of(*targets: str) -> Callable[[Node], bool]:
    return lambda node: node.target.partition(".")[0] in targets


def is_integer_convolution(node: Node) -> bool:
    return "convolution" in node.target and "int64" in node.dtypes()


def in_place(x: Tensor, number: float) -> Tensor:
    y = (x * 0.25).clone()
    y[:, 1:].erfinv_().add_(number)
    return y.cumsum(0)


def convolved(x: Tensor, number: float) -> Tensor:
    images = (x * 10).long()[None, None]
    return F.conv2d(images, images[..., :2, :2], padding=1).float() + number


def trained(x: Tensor, number: float) -> Tensor:
    weight = (x * 0.5).detach().requires_grad_()
    (torch.erfinv(weight) * number).square().sum().backward()
    assert weight.grad is not None
    return weight.grad


PROGRAMS: dict[str, tuple[Callable[[Node], bool], Callable[[Tensor, float], Tensor], str]] = {
    "one call": (of("erfinv"), lambda x, k: torch.erfinv(x * 0.5).add(k).cumsum(0), "erfinv"),
    "two calls": (
        of("erfinv", "cumsum"),
        lambda x, k: torch.erfinv(torch.erfinv(x * 0.5).add(k).cumsum(0) * 0.01).sin(),
        "erfinv",
    ),
    "in place, through a view": (of("erfinv"), in_place, "erfinv"),
    "with out=": (
        of("erfinv"),
        lambda x, k: torch.erfinv(x * 0.5, out=torch.empty_like(x)) + k,
        "erfinv",
    ),
    "with a number": (of("leaky_relu"), lambda x, k: F.leaky_relu(x - 0.1, k).exp(), "leaky_relu"),
    "convolutions of integers": (is_integer_convolution, convolved, "convolution"),
    "with a gradient": (of("erfinv"), trained, "erfinv"),
}


WAYS = [(name, way) for name in PROGRAMS for way in ("fused", "strict", "debug", "compiled")]
WAYS.remove(("with a gradient", "compiled"))  # a training step is no graph


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_it_runs_on_the_host_and_is_asked_about_once(
    name: str, way: str, compiler: Refusing
) -> None:
    refuses, program, operator = PROGRAMS[name]
    compiler.refuse(refuses)
    x = torch.linspace(-0.9, 0.9, 12).view(3, 4)
    call = torch.compile(program, backend="tpu") if way == "compiled" else program
    before, said = counted(operator), []
    with mode("fused" if way == "compiled" else way), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for number in range(100):
            found = call(x.to(DEVICE), 1.5).cpu()
            torch.testing.assert_close(found, program(x, 1.5))
            compiler.settle()
            if number == 10:
                refused, fallbacks = compiler.chunks, counted(operator)
        said = [str(one.message) for one in heard if "runs on the host" in str(one.message)]
    assert compiler.chunks == refused > 0
    assert counted(operator) - fallbacks >= 89 and fallbacks > before
    mine = [text for text in said if re.match(rf"aten::{operator}[._ ]", text)]
    assert mine and len(said) == len(set(said))
    assert f"its compiler refuses it: RuntimeError: {WORDS}); first at " in mine[0]
    assert "module" not in mine[0] and "unknown line" not in mine[0]


def counted(operator: str) -> int:
    found = fuse.stats()["host_fallbacks"]
    return sum(n for name, n in found.items() if name.partition(".")[0].rstrip("_") == operator)


@pytest.mark.filterwarnings("ignore:.*runs on the host")
def test_whatever_numbers_it_carries(compiler: Refusing) -> None:
    compiler.refuse(of("leaky_relu"))
    x = torch.linspace(-1, 1, 5)
    for number in range(40):
        found = F.leaky_relu(x.to(DEVICE) * 2, number / 8).exp().cpu()
        torch.testing.assert_close(found, F.leaky_relu(x * 2, number / 8).exp())
        compiler.settle()
        if number == 10:
            refused = compiler.chunks
    assert compiler.chunks == refused


@pytest.mark.filterwarnings("ignore:.*runs on the host")
def test_calls_of_other_sizes_are_compiled(compiler: Refusing) -> None:
    compiler.refuse(lambda node: node.target == "erfinv" and node.outputs[0].view.shape == (5,))
    small, large = torch.full((4,), 0.5), torch.full((5,), 0.5)
    for _ in range(8):
        for x in (small, large):
            torch.testing.assert_close((x.to(DEVICE) * 0.5).erfinv().cpu(), (x * 0.5).erfinv())
            compiler.settle()
    before = counted("erfinv")
    for _ in range(8):
        (small.to(DEVICE) * 0.5).erfinv().cpu()
    assert counted("erfinv") == before > 0


@pytest.mark.filterwarnings("ignore:.*runs on the host")
def test_draws_are_the_devices(compiler: Refusing) -> None:
    def drawn() -> list[list[float]]:
        torch.manual_seed(3)
        return [(torch.rand(5, device=DEVICE) + 1).tolist() for _ in range(6)]

    expected = drawn()
    lazy.core().forget()
    compiler.refuse(of("rand", "uniform", "uniform_"))
    assert drawn() == expected


@only_in("compiled", "accelerator", reason="chunks that are waited for")
def test_where_a_fallback_is_an_error_it_is_one_and_nothing_else_is_lost(
    compiler: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "error")
    compiler.refuse(of("erfinv"))
    x = torch.full((3,), 0.25, device=DEVICE)
    bad, good = x.mul(2).erfinv(), x + 0.125
    with pytest.raises(HostFallbackError) as caught:
        torch.tpu.synchronize()
    text = str(caught.value)
    assert WORDS in text and "aten::erfinv" in text and "test_refused_by_compiler.py:" in text
    assert "unset FUSE_HOST_FALLBACK=error" in text
    assert good.tolist() == [0.375] * 3
    with pytest.raises(RuntimeError, match=WORDS):
        bad.cpu()
    with pytest.raises(HostFallbackError, match=WORDS):  # at the call
        x.mul(2).erfinv()
    monkeypatch.setenv("FUSE_HOST_FALLBACK", "silent")
    torch.testing.assert_close(x.mul(2).erfinv().cpu(), torch.full((3,), 0.5).erfinv())


@only_in("compiled", "accelerator", reason="chunks that are waited for")
def test_what_the_host_cannot_compute_either_is_the_users_error(
    compiler: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: Any) -> Any:
        raise NotImplementedError("nor has the host")

    compiler.refuse(of("erfinv"))
    monkeypatch.setattr(compiler.planning.compiler, "run_uncompiled", nothing)
    x = torch.full((3,), 0.25, device=DEVICE)
    bad, good = x.mul(2).erfinv(), x + 0.125
    with pytest.warns(UserWarning, match=WORDS), pytest.raises(ExecutionError, match=WORDS):
        torch.tpu.synchronize()
    assert good.tolist() == [0.375] * 3
    with pytest.raises(RuntimeError, match=r"(?s)nor has the host.*erfinv"):
        bad.cpu()


@only_in("compiled", "accelerator", reason="chunks that are waited for")
@pytest.mark.parametrize(
    "error", [MemoryError("full"), OSError("no space left"), None], ids=["memory", "disk", "device"]
)
def test_what_may_pass_is_no_refusal(
    error: Exception | None, compiler: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error is None:
        monkeypatch.setattr(compiler.backend, "ran_out", lambda _: True)
    compiler.error = error or compiler.error
    compiler.refuse(of("erfinv"))
    x = torch.full((3,), 0.25)
    with pytest.raises(RuntimeError):
        x.to(DEVICE).mul(2).erfinv().cpu()
    compiler.refuse(lambda node: False)
    before = counted("erfinv")
    torch.testing.assert_close(x.to(DEVICE).mul(2).erfinv().cpu(), x.mul(2).erfinv())
    assert counted("erfinv") == before


@only_in("compiled", "accelerator", reason="chunks that are waited for")
def test_warnings_that_are_errors_lose_nothing(
    compiler: Refusing, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler.refuse(of("erfinv"))
    x = torch.full((3,), 0.25)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(x.to(DEVICE).mul(2).erfinv().cpu(), x.mul(2).erfinv())
    assert WORDS in capsys.readouterr().err
