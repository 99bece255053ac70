"""Attention, spelled every way PyTorch spells it, and embeddings."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.device.helpers import recorder
from tests.programs.harness import compare_with_cpu, train

pytestmark = pytest.mark.usefixtures("mode")


@pytest.mark.parametrize("kind", ["plain", "causal", "boolean mask", "float mask", "scale"])
def test_scaled_dot_product_attention(kind: str):
    def program(device):
        q, k, v = (torch.randn(2, 2, 5, 4).to(device).requires_grad_() for _ in range(3))
        options = {
            "plain": {},
            "causal": {"is_causal": True},
            "boolean mask": {"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril().to(device)},
            "float mask": {"attn_mask": torch.randn(5, 5).to(device)},
            "scale": {"scale": 0.3},
        }[kind]
        y = F.scaled_dot_product_attention(q, k, v, **options)
        y.square().sum().backward()
        return y, q.grad, k.grad, v.grad

    compare_with_cpu(program)


def test_attention_of_float64_has_two_derivatives():
    """To float64's precision, which no kernel of CUDA's has either."""
    q, k, v = (torch.randn(1, 2, 4, 3, dtype=torch.float64) for _ in range(3))
    inputs = [one.to("tpu").requires_grad_() for one in (q, k, v)]

    def attend(*inputs):
        return F.scaled_dot_product_attention(*inputs, is_causal=True)

    torch.testing.assert_close(attend(*inputs).cpu(), attend(q, k, v), rtol=1e-13, atol=1e-13)
    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(attend, inputs, fast_mode=True)


def test_multihead_attention_with_masks():
    def program(device):
        model = nn.MultiheadAttention(8, 2, batch_first=True).to(device)
        x = torch.randn(2, 5, 8).to(device)
        pad = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]).to(device)
        causal = nn.Transformer.generate_square_subsequent_mask(5, device=device)
        y, weights = model(x, x, x, key_padding_mask=pad.float().mul(-1e9), attn_mask=causal)
        y.square().mean().backward()
        model.eval()
        with torch.no_grad():
            again, none = model(x, x, x, key_padding_mask=pad, need_weights=False)
        return y, weights, again, none, [p.grad for p in model.parameters()]

    compare_with_cpu(program)


def hidden(*rows):
    """A padding mask of 5 keys: which of them are not seen."""
    return torch.tensor([[name == "x" for name in row] for row in rows])


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("masks", ["none", "padding", "attention", "both"])
def test_inference_of_multihead_attention(masks, average):
    def program(device):
        model = nn.MultiheadAttention(8, 2, batch_first=True).eval().to(device)
        x = torch.randn(3, 5, 8).to(device)
        options = {}
        if masks in ("padding", "both"):
            options["key_padding_mask"] = hidden(".....", "..xxx", "xxxxx").to(device)
        if masks in ("attention", "both"):
            options["attn_mask"] = torch.ones(5, 5, dtype=torch.bool).triu(1).to(device)
        with torch.no_grad():
            return model(x, x, x, average_attn_weights=average, **options)

    compare_with_cpu(program, runs=2)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("masked", [True, False])
def test_inference_of_a_transformer_encoder(norm_first, activation, masked):
    """The modules call one kernel a layer, which has no rule: it is a program of others."""

    def program(device):
        layer = nn.TransformerEncoderLayer(
            8, 2, 16, activation=activation, norm_first=norm_first, batch_first=True
        )
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().to(device)
        x = torch.randn(2, 5, 8).to(device)
        mask = hidden("..x..", "xx...").to(device) if masked else None
        with torch.no_grad():
            return model(x, src_key_padding_mask=mask)

    compare_with_cpu(program, runs=2)


def test_an_encoder_of_padded_sequences():
    """PyTorch makes nested tensors of sequences padded at their ends; the device goes on with
    the mask. What stands at the padding is anything."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x, mask = torch.randn(2, 5, 8), hidden(".....", "..xxx")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors", UserWarning)
        expected = model(x, src_key_padding_mask=mask)
        found = model.to("tpu")(x.to("tpu"), src_key_padding_mask=mask.to("tpu")).cpu()
    torch.testing.assert_close(found[~mask], expected[~mask])


def test_nested_tensors_are_refused():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, mask_check=False).eval().to("tpu")
    with torch.no_grad(), pytest.raises(RuntimeError, match="enable_nested_tensor=False"):
        model(
            torch.randn(2, 5, 8).to("tpu"), src_key_padding_mask=hidden("...xx", ".....").to("tpu")
        )


def test_wrong_arguments_of_attention_for_inference():
    x, weight, bias = (torch.zeros(*shape, device="tpu") for shape in ((2, 5, 8), (24, 8), (24,)))

    def call(x, width, heads, weight, *options):
        rest = (weight, bias, torch.zeros(8, 8, device="tpu"), torch.zeros(8, device="tpu"))
        return torch._native_multi_head_attention(x, x, x, width, heads, *rest, *options)

    with recorder(tier="compiled"):  # uncompiled, the CPU's kernel says it in its own words
        with pytest.raises(RuntimeError, match="expected 3-D `query`, got 2-D tensor"):
            call(x[0], 8, 2, weight)
        with pytest.raises(RuntimeError, match="embed_dim 6 didn't match last dim of query 8"):
            call(x, 6, 2, weight)
        with pytest.raises(RuntimeError, match=r"of shape \[24, 8\], got \[8, 8\]"):
            call(x, 8, 2, weight[:8])
        with pytest.raises(RuntimeError, match="8 must divide evenly by `num_head` 3"):
            call(x, 8, 3, weight)
        with pytest.raises(RuntimeError, match="Mask Type should be 0 .* not None"):
            call(x, 8, 2, weight, hidden(".....", "....."))


def test_a_transformer_layer_trains():
    def program(device):
        model = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=True, activation="gelu"
        )
        x = torch.randn(2, 4, 8)
        return train(model, (x,), lambda m, x: m(x)[..., :3].square().mean(), device)

    compare_with_cpu(program, runs=2)


def test_attention_written_out():
    """Projections split by view and chunk, a registered mask, softmax of a masked fill."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
            self.register_buffer("mask", torch.ones(6, 6).tril().bool())

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (p.view(b, t, 2, c // 2).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
            score = q @ k.transpose(-2, -1) / math.sqrt(c // 2)
            score = score.masked_fill(~self.mask[:t, :t], float("-inf"))
            return self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))

    def program(device):
        x = torch.randn(2, 5, 8)
        return train(Attention(), (x,), lambda m, x: m(x).square().mean(), device)

    compare_with_cpu(program, runs=2)


def test_a_key_value_cache_written_in_place():
    def program(device):
        cache = torch.zeros(2, 6, 4, device=device)
        query = torch.randn(6, 2, 4).to(device)
        read = []
        for t in range(6):
            cache[:, t] = query[t] * 0.5
            score = (cache[:, : t + 1] @ query[t].unsqueeze(-1)).squeeze(-1)
            read.append((score.softmax(-1).unsqueeze(1) @ cache[:, : t + 1]).squeeze(1))
        return torch.stack(read), cache

    compare_with_cpu(program, runs=2)


def test_embeddings_train():
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 6, padding_idx=0)
            self.bag = nn.EmbeddingBag(10, 6, mode="mean")

        def forward(self, x):
            return self.table(x).mean(1) * self.bag(x)

    def program(device):
        x = torch.tensor([[1, 2, 2, 0], [9, 0, 3, 1]])
        return train(Text(), (x,), lambda m, x: (m(x) - 1).square().sum(), device)

    compare_with_cpu(program, runs=2)


def test_tied_embeddings():
    def program(device):
        table = nn.Embedding(7, 4).to(device)
        head = nn.Linear(4, 7, bias=False).to(device)
        head.weight = table.weight
        x, y = torch.tensor([1, 5, 5]).to(device), torch.tensor([2, 0, 6]).to(device)
        F.cross_entropy(head(table(x)), y, label_smoothing=0.1).backward()
        return table.weight.grad, head.weight is table.weight

    compare_with_cpu(program)
