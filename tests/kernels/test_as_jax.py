"""``fuse.as_jax`` and ``fuse.to_stablehlo``: PyTorch's modules as functions of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fuse


def small(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, tokens: torch.Tensor, causal: bool = True) -> dict[str, Any]:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        hidden = self.layer(self.norm(self.embed(tokens)), mask if causal else None)
        return {"hidden": hidden, "length": length, "best": hidden.argmax(-1)}


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)),
        (torch.randn(5, 6, generator=small()),),
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(4 * 16, 2), nn.LogSoftmax(-1),
        ),
        (torch.randn(2, 3, 8, 8, generator=small()),),
    ),
    "recurrent": (
        lambda: nn.GRUCell(4, 4), (torch.randn(3, 4, generator=small()), torch.zeros(3, 4)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "tpu"])
@pytest.mark.parametrize("name", MODULES)
def test_values_and_gradients_are_pytorchs(name: str, device: str) -> None:
    make, inputs = MODULES[name]
    torch.manual_seed(0)
    module = make().eval()
    expected = module(*inputs)
    expected.square().sum().backward()
    function = fuse.as_jax(module.to(device))
    arrays = [jnp.asarray(one.numpy()) for one in inputs]

    def loss(params: dict[str, jax.Array], *args: jax.Array) -> jax.Array:
        return (function(params, *args) ** 2).sum()

    found = jax.jit(function)(function.params, *arrays)
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    grads = jax.jit(jax.grad(loss, allow_int=True))(function.params, *arrays)
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None
        wanted = parameter.grad.cpu().numpy()
        np.testing.assert_allclose(grads[key], wanted, rtol=1e-3, atol=1e-4, err_msg=key)


def test_results_are_arranged_as_in_pytorch() -> None:
    torch.manual_seed(0)
    module = Attention().eval()
    tokens = torch.randint(11, (2, 5), generator=small())
    function = fuse.as_jax(module)
    for causal in (True, False):
        found = function(function.params, jnp.asarray(tokens.numpy()), causal=causal)
        expected = module(tokens, causal=causal)
        assert found["length"] == 5 and found["best"].dtype == jnp.int32
        np.testing.assert_array_equal(found["best"], expected["best"].numpy())
        wanted = expected["hidden"].detach().numpy()
        np.testing.assert_allclose(found["hidden"], wanted, rtol=1e-4, atol=1e-5)


def test_a_function_is_mapped_and_differentiated() -> None:
    function = fuse.as_jax(lambda x, y: F.softplus(x @ y).sum())
    x, y = jnp.linspace(-1, 1, 12).reshape(4, 3), jnp.ones(3)
    assert function.params == {}
    each = jax.vmap(function, in_axes=(0, None))(x, y)
    np.testing.assert_allclose(each, jax.nn.softplus(x @ y), rtol=1e-5)
    slope = jax.grad(function)(x, y)
    np.testing.assert_allclose(slope, jax.nn.sigmoid(x @ y)[:, None] * y, rtol=1e-5)


def test_a_function_of_one_shape_is_traced_once() -> None:
    calls = []

    def function(x: torch.Tensor) -> torch.Tensor:
        calls.append(tuple(x.shape))
        return x.cumsum(0)

    wrapped = fuse.as_jax(function)
    for length in (3, 3, 4, 3):
        np.testing.assert_array_equal(wrapped(jnp.ones(length)), np.arange(1, length + 1))
    assert set(calls) == {(3,), (4,)} and len(calls) <= 4  # PyTorch may look twice


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (lambda x: F.dropout(x), r"is no function of JAX: .*random numbers(?s:.*)float32\[3\]"),
        (lambda x: x * x.sum().item(), r"is no function of JAX: (?s:.*)hint: .*reads values"),
        (lambda x: x.add_(1), r"is no function of JAX: it writes into what it is given"),
    ],
    ids=["draws", "reads", "writes"],
)
def test_what_cannot_be_one_says_why(target: Any, text: str) -> None:
    with pytest.raises(fuse.errors.KernelError, match=text):
        fuse.as_jax(target)(jnp.ones(3))


def test_a_program_has_its_weights_as_arguments() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(5, 3, generator=small())
    program = fuse.to_stablehlo(module, x, platforms=["cpu", "tpu"])
    text = program.mlir_module()
    assert text.count("= stablehlo.dot_general") >= 2 and "stablehlo.tanh" in text
    assert [tuple(aval.shape) for aval in program.in_avals][-1] == (5, 3)
    assert program.platforms == ("cpu", "tpu")
    params = fuse.as_jax(module).params
    leaves = jax.tree.leaves([params, jnp.asarray(x.numpy())])
    (found,) = program.call(*leaves)
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
