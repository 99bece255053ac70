"""A small part of a large tensor is overwritten where it lies, whatever its strides and dtype."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
import torch

from fuse.backends.xla.cpu import updates
from fuse.trace.spec import View
from tests.device.helpers import DEVICE, compile_anew, made, note_kernels

CPU = torch.device("cpu")
Part = Callable[[torch.Tensor, int], torch.Tensor]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels by which programs compiled from now on overwrite a value."""
    compile_anew(monkeypatch)
    return note_kernels(monkeypatch, "overwrite")


PARTS: dict[str, Part] = {
    "a row": lambda x, t: x[t],
    "a column": lambda x, t: x[:, t],
    "a block": lambda x, t: x[2 : 2 + 8, t : t + 3, 1:],
    "every third row": lambda x, t: x[t::3],
    "every other column from the end of one": lambda x, t: x[:, t : t + 9 : 2],
    "turned": lambda x, t: x.permute(2, 0, 1)[t % 4],
    "a diagonal": lambda x, t: x.diagonal(t, 0, 1),
    "a number": lambda x, t: x[t, t, 3],
    "in memory": lambda x, t: x.as_strided((3, 5), (100, 7), t),
    "as matrices": lambda x, t: x.view(-1, 8)[t : t + 4],
}


def written(part: Part, dtype: torch.dtype, device: torch.device) -> list[torch.Tensor]:
    x = (torch.arange(24 * 25 * 16) % 97).reshape(24, 25, 16).to(dtype).to(device)
    found = []
    for t in range(5):
        target = part(x, t)
        value = (torch.arange(target.numel()) % 89).reshape(target.shape).add(t).to(dtype)
        part(x, t)[...] = value.to(device)
        rows = x.view(600, 16)
        found.append((rows.t() @ rows).cpu())
    return [x.cpu(), *found]


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str, calls: list[str]):
    expected = written(PARTS[name], torch.float32, CPU)
    for _ in range(2):
        for one, other in zip(written(PARTS[name], torch.float32, DEVICE), expected, strict=True):
            torch.testing.assert_close(one, other)
    assert "update" in calls


@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.bfloat16, torch.float16, torch.int64, torch.complex64, torch.complex128],
)
def test_dtypes(dtype: torch.dtype, calls: list[str]):
    for name in ("a block", "a column"):
        expected = written(PARTS[name], dtype, CPU)
        torch.testing.assert_close(written(PARTS[name], dtype, DEVICE)[0], expected[0])
    assert "update" in calls


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        pytest.param((64, 64), lambda x: x[:40], id="most of it"),
        pytest.param((8, 8), lambda x: x[3], id="of a small one"),
        pytest.param((64, 64), lambda x: x.view(torch.int32)[3], id="by another dtype"),
        pytest.param((64, 64), lambda x: x[:0], id="nothing"),
    ],
)
def test_xla_writes_other_parts(shape: tuple[int, ...], part: Callable, calls: list[str]):
    def program(device: torch.device) -> list[torch.Tensor]:
        x = torch.linspace(0, 1, shape[0] * shape[1]).reshape(shape).to(device)
        part(x)[...] = 7
        return [(x @ x).cpu(), x.cpu()]

    torch.testing.assert_close(program(DEVICE), program(CPU))
    assert "update" not in calls


def test_xla_writes_where_no_product_reads(calls: list[str]):
    def program(device: torch.device) -> list[torch.Tensor]:
        x, y = torch.arange(8192.0).view(64, 128).to(device), torch.ones(128, 64, device=device)
        before = x @ y
        x[3] = 7
        return [before.cpu(), x.tanh().sum().cpu(), x.cpu()]

    torch.testing.assert_close(program(DEVICE), program(CPU))
    assert "update" not in calls


def test_updates_among_tensors_that_are_updated_alike(calls: list[str]):
    """Which are rows of one array, and emitted as one."""

    def program(device: torch.device) -> list[torch.Tensor]:
        xs = [torch.full((64, 64), float(k)).to(device) for k in range(8)]
        found = []
        for t in range(4):
            torch._foreach_mul_(xs, 0.5)
            for x in xs:
                x[t] = t
            found += [(x @ x).cpu() for x in xs]
        return found + [x.cpu() for x in xs]

    for _ in range(2):
        torch.testing.assert_close(program(DEVICE), program(CPU))


def test_what_is_read_before_keeps_its_value(calls: list[str]):
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        before, kept = x.sum(0), x.clone()
        alias = x[5]
        x[5] = x[6]
        product = x @ x
        x[6] = alias * 2
        x[7:9] = x[6:8] * 2  # overlaps what it is made from
        x[0] += x[1]
        return [before, kept - x, alias + 0, product, x @ x, x]

    start = torch.randn(64, 64)
    expected = program(start.clone())
    for _ in range(3):
        for one, other in zip(program(start.to(DEVICE)), expected, strict=True):
            torch.testing.assert_close(one.cpu(), other)
    assert "update" in calls


def turned(v: torch.Tensor) -> None:
    v[:, :5] = v.t()[:, :5].clone()


def turned_rows(v: torch.Tensor) -> None:
    v[:5] = v[:, :5].t() + 1


def flipped(v: torch.Tensor) -> None:
    v[:4].copy_(v[:4].flip(0))


def shifted(v: torch.Tensor) -> None:
    v[2:6] = v[0:4] * 1


def rolled(v: torch.Tensor) -> None:
    v[:6] = torch.roll(v[:6], 1, 0)


def exchanged(v: torch.Tensor) -> None:
    kept = v[:2].clone()
    v[:2] = v[2:4]
    v[2:4] = kept


def from_a_sum(v: torch.Tensor) -> None:
    v[1] = v.cumsum(1)[:, 3]


def scaled_by_another(v: torch.Tensor) -> None:
    v[:, 1].mul_(v[:, 0])


@pytest.mark.parametrize("after", ["read", "written"])
@pytest.mark.parametrize("side", [8, 64])
@pytest.mark.parametrize(
    "change",
    [turned, turned_rows, flipped, shifted, rolled, exchanged, from_a_sum, scaled_by_another],
)
def test_parts_made_of_the_same_tensor(
    change: Callable[[torch.Tensor], None], side: int, after: str, calls: list[str]
):
    """XLA's own update, fused with its reads, would read elements that it has written."""

    def program(device: torch.device) -> torch.Tensor:
        v = torch.arange(float(side * side)).to(device).view(side, side)
        change(v)
        if after == "written":
            v[7] = 7.0
        return v.cpu()

    for _ in range(3):
        assert torch.equal(program(DEVICE), program(CPU))
    assert "update" in calls


def test_functional_forms_made_of_the_same_tensor(calls: list[str]):
    def program(device: torch.device) -> list[torch.Tensor]:
        v = torch.arange(64.0).to(device).view(8, 8)
        y = torch.slice_scatter(v, v.t()[:, :4].clone(), 1, 0, 4)
        y[7] = 7.0
        z = torch.select_scatter(v, v.t()[3], 0, 2).reshape(64)
        w = torch.diagonal_scatter(v, v[:, 1].flip(0)).reshape(64)
        return [each.cpu() for each in (y, z, w, v)]

    for _ in range(3):
        torch.testing.assert_close(program(DEVICE), program(CPU), rtol=0, atol=0)
    assert "update" in calls


def test_operations_in_place_are_xlas(calls: list[str]):
    def program(device: torch.device) -> torch.Tensor:
        x = torch.arange(64.0).to(device).view(8, 8)
        x[:, :4] *= 2
        x[2].add_(1).clamp_(0, 30)
        return x.cpu()

    assert torch.equal(program(DEVICE), program(CPU))
    assert "update" not in calls


@jax.enable_x64(True)
def test_a_cache_is_not_copied(calls: list[str]):
    """A token written to a cache that a product reads: XLA has no copy of the cache to make."""
    shape, token = (1, 4, 256, 16), (1, 4, 1, 16)
    view = View("float32", token, (4 * 256 * 16, 256 * 16, 16, 1), 0)

    def step(
        cache: jax.Array, token: jax.Array, place: jax.Array, weights: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        new = updates.written(cache, view, token, place)
        return new, jnp.einsum("hk,hke->he", weights, new.reshape(4, 256, 16))

    arguments = (
        jnp.zeros(shape), jnp.ones(token), jnp.asarray(32, jnp.int64), jnp.ones((4, 256)),
    )  # fmt: skip
    compiled = jax.jit(step, donate_argnums=0).lower(*arguments).compile()
    program = compiled.as_text() or ""
    assert "update" in program
    assert not [line for line in program.splitlines() if " copy(" in line and "4,256,16]" in line]
    cache, read = compiled(*arguments)
    assert cache[0, :, 2].tolist() == [[1.0] * 16] * 4
    assert cache.sum() == 64
    assert read.tolist() == [[1.0] * 16] * 4


def test_decoding_compiles_nothing_after_the_third_token(calls: list[str]):
    def tokens(device: torch.device, count: int) -> list[float]:
        torch.manual_seed(0)
        weight = torch.randn(3 * 32, 32).to(device)
        keys, values = (torch.zeros(2, 4, 64, 8, device=device) for _ in range(2))
        x, found = torch.ones(2, 32).to(device), []
        for t in range(count):
            q, k, v = (part.view(2, 4, 1, 8) for part in (x @ weight.t()).chunk(3, -1))
            keys[:, :, t : t + 1], values[:, :, t : t + 1] = k, v
            y = torch.softmax(q @ keys.transpose(2, 3), -1) @ values
            x = torch.tanh(x + y.reshape(2, 32))
            found.append(x.sum().item())
            if t == 2:
                before = made()
        assert device == CPU or made() == before
        return found

    assert tokens(DEVICE, 20) == pytest.approx(tokens(CPU, 20), rel=1e-4, abs=1e-4)
    assert "update" in calls


@jax.enable_x64(True)
def test_outside_the_array_is_an_error():
    view = View("float32", (4,), (1,), 0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="outside the array"):
        updates.written(
            jnp.zeros(4096), view, jnp.ones(4), jnp.asarray(4093, jnp.int64)
        ).block_until_ready()
