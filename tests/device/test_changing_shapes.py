"""Shapes that keep changing at one place: a cap, PyTorch's own kernels past it, right values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from fuse.device import lazy
from fuse.engine.host_calls import ShapeCapWarning
from tests.device.helpers import DEVICE, Block, Counted, mode, recorder

CPU = torch.device("cpu")
KNOWN = 4
"""Shapes that a place in these tests may have; the start of a trace may have 6."""


SIZES = (3, 5, 4, 6, 7, 9, 8)


@contextmanager
def capping(shapes: int) -> Iterator[None]:
    """In the block a place may have this many shapes, and one does have more."""
    with recorder(shape_cap=shapes), pytest.warns(ShapeCapWarning, match="runs uncompiled"):
        yield


@pytest.fixture
def capped() -> Iterator[None]:
    with capping(KNOWN):
        yield


def grow(device: torch.device, length: int) -> list[float]:
    """A sequence that grows by one number at a time, each computed from all before it."""
    found, last = [], torch.ones(1, device=device)
    sequence = last
    for _ in range(length):
        sequence = torch.cat([sequence, last])
        last = (sequence * 0.5).tanh().mean().reshape(1)
        found.append(last.item())
    return found


def test_sequences_that_grow_again_and_again_run_uncompiled_throughout(capped: None):
    expected = pytest.approx(grow(CPU, 20), rel=1e-6)
    for _ in range(2):
        assert grow(DEVICE, 20) == expected
    with Counted() as counted:
        for _ in range(10):
            assert grow(DEVICE, 20) == expected
    # Each starts with `ones`, which no shape changes; now and then one goes on compiled.
    assert counted.uncompiled > 0.9 * (counted.recorded + counted.uncompiled)


def sizes(device: torch.device, lengths: list[int]) -> list[float]:
    weight = torch.linspace(0, 1, 3, device=device)
    return [(torch.ones(n, 3) * n).to(device).mul(weight).tanh().sum().item() for n in lengths]


def test_a_shape_that_comes_often_stays_compiled_among_rare_others(capped: None):
    lengths = [8] * 20 + [9, 10, 11, 12, 13, 14, 15]
    assert sizes(DEVICE, lengths) == pytest.approx(sizes(CPU, lengths), rel=1e-6)
    sizes(DEVICE, [8] * 20)  # the known shape comes back
    with Counted() as counted:
        for rare in range(16, 26):
            lengths = [8] * 30 + [rare]
            assert sizes(DEVICE, lengths) == pytest.approx(sizes(CPU, lengths), rel=1e-6)
    assert 0 < counted.uncompiled <= 10 * 3
    assert counted.recorded >= 10 * 30 * 3


def test_the_cap_is_of_fused_eager_alone(capped: None):
    for _ in range(2):
        grow(DEVICE, 20)
    with mode("strict"), Counted() as counted:
        assert grow(DEVICE, 8) == pytest.approx(grow(CPU, 8), rel=1e-6)
    assert counted.uncompiled == 0


def test_what_is_converted_from_a_changing_shape_stays_uncompiled(capped: None):
    def step(device: torch.device, length: int) -> float:
        x = torch.arange(length, device=device) * 2  # its length is the changing shape
        half = x.to(torch.float32).div(3)
        return half.to(torch.float64).exp().sum().item()

    for length in range(2, 12):
        step(DEVICE, length)
    with Counted() as counted:
        assert step(DEVICE, 12) == pytest.approx(step(CPU, 12))
    assert counted.recorded == 0
    assert counted.uncompiled >= 5


def test_memory_past_the_cap_is_whose_it_was(capped: None):
    """Values that host kernels made are read as they are, and never written by a reader."""

    def step(device: torch.device, length: int) -> list[list[float]]:
        x = torch.ones(length, device=device) * 3
        same, part = x * 1, x[1:]
        x.add_(part.sum())
        part.mul_(2)
        same.resize_(2).zero_()
        return [t.tolist() for t in (x, part, same, x.t(), torch.cat([x, same]))]

    for length in range(2, 14):
        assert step(DEVICE, length) == step(CPU, length)


def test_a_tensor_that_has_grown_is_read_uncompiled_and_compiled(capped: None):
    """Its memory is padded for the reader; the value keeps its own."""
    ragged = torch.ones(1, device=DEVICE)
    for _ in range(12):
        ragged = torch.cat([ragged, ragged[:1]])
        ragged.sum().item()
    for grown in (torch.ones(2).to(DEVICE), torch.ones(2, device=DEVICE) * 1):
        grown.resize_(4)  # on this device what is new is zeros
        assert (ragged[:4] + grown).tolist() == [2, 2, 1, 1]
        assert (grown * 2).tolist() == [2, 2, 0, 0]
        assert (ragged[:4] + grown).tolist() == [2, 2, 1, 1]


@pytest.mark.slow
def test_generating_over_growing_lengths_meets_the_cap() -> None:
    torch.manual_seed(0)
    embed, block, head = nn.Embedding(11, 8), Block(), nn.Linear(8, 11)
    host = [embed, block, head]
    device = [nn.Embedding(11, 8), Block(), nn.Linear(8, 11)]
    for one, other in zip(host, device, strict=True):
        other.load_state_dict(one.state_dict())
        other.to(DEVICE)

    @torch.no_grad()
    def generate(parts: list[nn.Module], where: torch.device, steps: int) -> list[int]:
        tokens, found = torch.zeros(1, 1, dtype=torch.long, device=where), []
        for _ in range(steps):
            logits = parts[2](parts[1](parts[0](tokens))[:, -1])
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
            found.append(int(tokens[0, -1]))
        return found

    before = fuse.stats()["compiles"]
    with capping(8):
        found = generate(device, DEVICE, 512)
    assert fuse.stats()["compiles"] - before <= 40
    assert found == generate(host, CPU, 512)


@pytest.mark.parametrize("grouped", [False, True], ids=["each", "grouped"])
@pytest.mark.parametrize("masked", ["causal", "bias", "truth"])
def test_attention_over_changing_lengths_trains_uncompiled(masked: str, grouped: bool) -> None:
    """Past the cap, attention and its gradient run on the host, which knows them by other names."""

    def losses(device: torch.device) -> list[float]:
        torch.manual_seed(0)
        layer = nn.Linear(8, 24).to(device)
        found = []
        for length in SIZES:
            x = torch.randn(1, length, 8).to(device)
            q, k, v = layer(x).view(1, length, 2, 3, 4).permute(3, 0, 2, 1, 4).unbind(0)
            mask = torch.randn(length, length).to(device).tril(1)
            mask = {"causal": None, "bias": mask, "truth": mask > -1}[masked]
            if grouped:
                k, v = k[:, :1], v[:, 1:]
            mixed = F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=mask is None, enable_gqa=grouped
            )
            loss = mixed.square().mean()
            loss.backward()
            found += [loss.item(), layer.weight.grad.norm().item()]
        return found

    with capping(2):
        found = losses(DEVICE)
    assert found == pytest.approx(losses(CPU), rel=1e-4)


def test_a_model_of_fixed_shapes_over_a_growing_sequence():
    """What grows is set apart, so that the model is compiled with it and once without it."""
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.Tanh())]
    model = nn.Sequential(nn.Embedding(16, 8), *layers, nn.Linear(8, 16))

    def generate(device: torch.device) -> list[int]:
        net = model.to(device)
        sequence = torch.zeros(1, 1, dtype=torch.long, device=device)
        with torch.no_grad():
            for _ in range(7):
                found = net(sequence[:, -1:]).argmax(-1)
                sequence = torch.cat([sequence, found], 1)
                assert 0 <= sequence[0, -1].item() < 16
        return sequence.tolist()

    expected = generate(CPU)
    with recorder(shape_cap=0):
        for _ in range(3):
            told = fuse.explain(generate, DEVICE).to_dict()
            assert generate(DEVICE) == expected
        chunks = [chunk for trace in told["traces"] for chunk in trace["chunks"]]
        models = [one["executable"] for one in chunks if len(one["operations"]) > 12]
    # The first trace also makes the sequence, the second is the first of its form.
    assert len(models) == 7 and len(set(models)) == 3


def cell(kind: type[nn.Module], dtype: torch.dtype, device: torch.device) -> list[torch.Tensor]:
    """Two time steps of a cell and a gradient, for one batch size after another."""
    torch.manual_seed(0)
    layer, found = kind(8, 8).to(device, dtype), list[torch.Tensor]()
    for batch in SIZES:
        x = torch.randn(2, batch, 8).to(device, dtype).requires_grad_()
        state = layer(x[0])
        state = layer(x[1], state)
        hidden = state[0] if isinstance(state, tuple) else state
        hidden.square().mean().backward()
        found += [hidden.detach().cpu(), x.grad.cpu()]
    return [*found, *(one.grad.cpu() for one in layer.parameters())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_cells_over_changing_batches_train_uncompiled(kind: type[nn.Module], dtype: torch.dtype):
    """The CPU has no such operator: the device brings the kernels."""
    with capping(2):
        found = cell(kind, dtype, DEVICE)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for one, other in zip(found, cell(kind, dtype, CPU), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(8,), (3, 8)], ids=str)
@pytest.mark.parametrize("weighted", [True, False], ids=["weight", "no weight"])
def test_rms_norm_over_changing_batches_trains_uncompiled(shape: tuple[int, ...], weighted: bool):
    def gradients(device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        norm, found = nn.RMSNorm(shape, elementwise_affine=weighted).to(device), []
        for batch in SIZES:
            x = torch.randn(batch, 3, 8).to(device).requires_grad_()
            norm(x).square().mean().backward()
            found.append(x.grad.cpu())
        return [*found, *(one.grad.cpu() for one in norm.parameters())]

    with capping(2):
        found = gradients(DEVICE)
    for one, other in zip(found, gradients(CPU), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_wide_products_of_changing_sizes_run_uncompiled():
    y = torch.randn(2, 4, 3).bfloat16()
    with capping(2):
        for rows in range(2, 9):
            x, added = torch.randn(2, rows, 4).bfloat16(), torch.randn(rows, 3).bfloat16()
            on, by, plus = x.to(DEVICE), y.to(DEVICE), added.to(DEVICE)
            wide = torch.float32
            found = [
                torch.mm(on[0], by[0], out_dtype=wide),
                torch.bmm(on, by, out_dtype=wide)[0],
                torch.addmm(plus, on[0], by[0], out_dtype=wide, beta=0.5, alpha=2),
                torch.baddbmm(plus, on, by, out_dtype=wide)[0],
            ]
            product = x[0].float() @ y[0].float()
            plain = added.float()
            expected = [product, product, 0.5 * plain + 2 * product, plain + product]
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one.cpu(), other)


def decode(device: torch.device, length: int) -> list[float]:
    """Each step begins with a product of fixed shape, and goes on with all steps before it."""
    weight = torch.eye(8, device=device) * 0.5
    x, kept, found = torch.ones(1, 8, device=device), None, []
    x.sum().item()
    for _ in range(length):
        y = (x @ weight).tanh() + 0.5
        kept = y if kept is None else torch.cat([kept, y])
        found.append((kept.softmax(0) @ weight).sum().item())
    return found


def test_traces_that_always_end_uncompiled_begin_so(capped: None):
    """Until they end otherwise: then they are compiled again."""
    expected = pytest.approx(decode(CPU, 16), rel=1e-5)
    for _ in range(8):
        assert decode(DEVICE, 16) == expected
    with Counted() as counted:
        for _ in range(8):
            assert decode(DEVICE, 16) == expected
    # What makes the tensors is compiled, and the whole first step, which meets no others. Of the
    # second one, which did begin as the first, now and then one does.
    assert counted.recorded <= 8 * 12 + 3
    for _ in range(64 + 4):
        assert decode(DEVICE, 1) == pytest.approx(decode(CPU, 1), rel=1e-5)
    with Counted() as counted:
        assert decode(DEVICE, 1) == pytest.approx(decode(CPU, 1), rel=1e-5)
    assert counted.uncompiled == 0


def test_what_the_device_records_can_run_on_the_host():
    """So that no operator fails where the shapes at its place keep changing."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = ("ImplicitAutograd", "ExplicitAutograd", "ExplicitAutogradNonFunctional")
    keys = ("CPU", *(f"Composite{kind}" for kind in composite))
    missing = [
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and lazy.engine().backend.has_rule(name.removeprefix("aten::"))
        and not any(has_kernel(name, key) for key in keys)
    ]
    assert missing == []
