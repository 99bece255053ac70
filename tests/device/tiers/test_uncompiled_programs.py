"""Programs of sizes that keep changing, as models write and train: run uncompiled, and in the tier
that is chosen for each segment, they give the CPU's results."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuse
from tests.device.helpers import DEVICE, Block, Counted, recorder
from tests.lanes import not_on_accelerators

pytestmark = not_on_accelerators("no call runs uncompiled there")

CPU = torch.device("cpu")
SIZES = (3, 5, 4, 6, 7, 9, 8)
TIERS = ("uncompiled", "auto")


def grow(device: torch.device, length: int) -> list[float]:
    """A sequence that grows by one number at a time, each computed from all before it."""
    found, last = [], torch.ones(1, device=device)
    sequence = last
    for _ in range(length):
        sequence = torch.cat([sequence, last])
        last = (sequence * 0.5).tanh().mean().reshape(1)
        found.append(last.item())
    return found


def sizes(device: torch.device, rare: int) -> list[float]:
    """One size again and again, and one that is new."""
    weight = torch.linspace(0, 1, 3, device=device)
    lengths = [8] * 30 + [rare]
    return [(torch.ones(n, 3) * n).to(device).mul(weight).tanh().sum().item() for n in lengths]


def converted(device: torch.device, length: int) -> float:
    x = torch.arange(length, device=device) * 2  # its length is what changes
    return x.to(torch.float32).div(3).to(torch.float64).exp().sum().item()


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


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("program", [grow, sizes, converted, decode])
def test_sizes_that_are_ever_new(program, tier: str) -> None:  # type: ignore[no-untyped-def]
    with recorder(tier=tier), Counted() as counted:
        for length in (*range(9, 16), 20, 20, 20, 1):
            assert program(DEVICE, length) == pytest.approx(program(CPU, length), rel=1e-5)
    assert counted.uncompiled > counted.recorded


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_generating_over_growing_lengths_compiles_little(tier: str) -> None:
    torch.manual_seed(0)
    host = [nn.Embedding(11, 8), Block(), nn.Linear(8, 11)]
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
    with recorder(tier=tier):
        found = generate(device, DEVICE, 512)
    assert fuse.stats()["compiles"] - before <= 40
    assert found == generate(host, CPU, 512)


@pytest.mark.parametrize("grouped", [False, True], ids=["each", "grouped"])
@pytest.mark.parametrize("masked", ["causal", "bias", "truth"])
def test_attention_over_changing_lengths_trains(masked: str, grouped: bool) -> None:
    """The host knows attention and its gradient by other names."""

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

    with recorder(tier="uncompiled"):
        found = losses(DEVICE)
    assert found == pytest.approx(losses(CPU), rel=1e-4)


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
def test_cells_over_changing_batches_train(kind: type[nn.Module], dtype: torch.dtype) -> None:
    """The CPU has no such operator: the device brings the kernels."""
    with recorder(tier="uncompiled"):
        found = cell(kind, dtype, DEVICE)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for one, other in zip(found, cell(kind, dtype, CPU), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(8,), (3, 8)], ids=str)
@pytest.mark.parametrize("weighted", [True, False], ids=["weight", "no weight"])
def test_rms_norm_over_changing_batches_trains(shape: tuple[int, ...], weighted: bool) -> None:
    def gradients(device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        norm, found = nn.RMSNorm(shape, elementwise_affine=weighted).to(device), []
        for batch in SIZES:
            x = torch.randn(batch, 3, 8).to(device).requires_grad_()
            norm(x).square().mean().backward()
            found.append(x.grad.cpu())
        return [*found, *(one.grad.cpu() for one in norm.parameters())]

    with recorder(tier="uncompiled"):
        found = gradients(DEVICE)
    for one, other in zip(found, gradients(CPU), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_wide_products_of_changing_sizes() -> None:
    y = torch.randn(2, 4, 3).bfloat16()
    with recorder(tier="uncompiled"):
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


def mixture(device: torch.device) -> list[torch.Tensor]:
    """What transformers' experts and caches call that PyTorch's CPU kernels refuse or write."""
    chosen = torch.tensor([[3, 1], [0, 3], [2, 2]], dtype=torch.int32, device=device) + 0
    counts = torch.histc(chosen if device.type == "tpu" else chosen.float(), bins=4, min=0, max=3)
    x = torch.linspace(-1, 1, 96, device=device).reshape(2, 4, 3, 4)
    seen = torch.ones(3, 3, dtype=torch.bool, device=device).tril()
    keys = x[:, :2]
    attended = [
        F.scaled_dot_product_attention(x, x, x, attn_mask=seen),
        F.scaled_dot_product_attention(x, x, x, attn_mask=seen.float(), scale=0.3),
        F.scaled_dot_product_attention(x, keys, keys, is_causal=True, enable_gqa=True),
        F.scaled_dot_product_attention(x.double(), x.double(), x.double()),
    ]
    normed = F.layer_norm(x, (4,), x[0, 0, 0], None)
    copies = [x.transpose(1, 2).contiguous(), x.mT.clone(), x.half()]
    copies[0] += 1  # a copy is the caller's own
    return [counts.int(), *attended, normed, *copies, x]


@pytest.mark.parametrize("tier", ["uncompiled", "compiled"])
def test_what_models_write_with(tier: str) -> None:
    expected = mixture(torch.device("cpu"))
    with recorder(tier=tier):
        for _ in range(6):
            with Counted() as found, torch.no_grad():
                on_device = [one.cpu() for one in mixture(DEVICE)]
            for one, other in zip(on_device, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert (found.recorded == 0) == (tier == "uncompiled")
