"""Kernels of others, as they are in JAX's wheel: for TPUs, for GPUs, and functions of JAX's own."""

from __future__ import annotations

import functools

import jax
import pytest
import torch
import torch.nn.functional as F
from jax.experimental.pallas.ops.gpu import attention, layer_norm, rms_norm, softmax
from jax.experimental.pallas.ops.tpu import flash_attention, matmul
from jax.experimental.pallas.ops.tpu.megablox import gmm
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as splash,
    splash_attention_mask as masks,
)

import fuse
from fuse.errors import KernelError
from tests.device.helpers import DEVICE


def both(kernel, reference, *shapes, tolerance=2e-5):
    """Kernel and PyTorch's CPU agree in results and, the sixth time, in gradients."""
    generator = torch.Generator().manual_seed(1)
    plain = [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]
    given = [tensor.detach().to(DEVICE).requires_grad_() for tensor in plain]
    wanted = reference(*plain)
    weight = torch.randn(wanted.shape, generator=generator)
    (wanted * weight).sum().backward()
    for _ in range(6):
        for tensor in given:
            tensor.grad = None
        found = kernel(*given)
        (found * weight.to(DEVICE)).sum().backward()
    torch.testing.assert_close(found.detach().cpu(), wanted.detach(), rtol=1e-4, atol=tolerance)
    for one, other in zip(given, plain, strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-3, atol=tolerance)


def heads_first(function):
    def run(q, k, v):
        return function(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)

    return run


def test_flash_attention_for_tpus():
    function = fuse.kernel(flash_attention.flash_attention)
    shape = (1, 2, 128, 64)
    reference = functools.partial(F.scaled_dot_product_attention, is_causal=True, scale=0.5)
    both(
        lambda q, k, v: function(q, k, v, causal=True, sm_scale=0.5),
        reference,
        shape,
        shape,
        shape,
        tolerance=1e-4,
    )


def test_attention_for_gpus():
    function = fuse.kernel(attention.mha)
    shape = (1, 64, 2, 16)
    both(
        lambda q, k, v: function(q, k, v, None, causal=True, sm_scale=0.25),
        heads_first(functools.partial(F.scaled_dot_product_attention, is_causal=True)),
        shape,
        shape,
        shape,
        tolerance=1e-4,
    )


def test_norms_for_gpus():
    layer = fuse.kernel(layer_norm.layer_norm)
    both(layer, lambda x, w, b: F.layer_norm(x, (64,), w, b), (4, 8, 64), (64,), (64,))
    scale = fuse.kernel(rms_norm.rms_norm)
    both(
        lambda x, w: scale(x, w, torch.zeros(64, device=DEVICE)),
        lambda x, w: F.rms_norm(x, (64,), w, 1e-5),
        (4, 8, 64),
        (64,),
    )


def test_softmax_for_gpus_has_no_gradient():
    function = fuse.kernel(softmax.softmax)
    x = torch.randn(4, 33, device=DEVICE)
    torch.testing.assert_close(function(x).cpu(), x.cpu().softmax(-1))
    with pytest.raises(KernelError, match="give fuse.kernel a gradient="):
        function(x.requires_grad_()).sum().backward()


def test_products_for_tpus():
    product = fuse.kernel(functools.partial(matmul.matmul, block_shape=(64, 64), block_k=64))
    x, y = torch.randn(128, 64), torch.randn(64, 128)
    torch.testing.assert_close(product(x.to(DEVICE), y.to(DEVICE)).cpu(), x @ y, atol=1e-4, rtol=0)


def test_grouped_products_for_tpus():
    x, weights = torch.randn(128, 128), torch.randn(2, 128, 128)
    sizes = torch.tensor([40, 88], dtype=torch.int32)
    wanted = torch.cat([x[:40] @ weights[0], x[40:] @ weights[1]])
    grouped = fuse.kernel(lambda *given: gmm(*given), name="fuse_tests::gmm")
    found = grouped(x.to(DEVICE), weights.to(DEVICE), sizes.to(DEVICE))
    torch.testing.assert_close(found.cpu(), wanted, atol=1e-3, rtol=1e-4)


def test_splash_attention_for_tpus():
    mask = masks.MultiHeadMask([masks.CausalMask((128, 128)) for _ in range(2)])
    attend = splash.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1)
    function = fuse.kernel(lambda q, k, v: jax.vmap(attend)(q, k, v), name="fuse_tests::splash")
    reference = functools.partial(F.scaled_dot_product_attention, is_causal=True, scale=1.0)
    shape = (1, 2, 128, 128)
    both(function, reference, shape, shape, shape, tolerance=1e-3)


def test_a_function_of_jaxs_own():
    function = fuse.kernel(jax.nn.dot_product_attention)
    shape = (2, 16, 4, 8)
    both(
        lambda q, k, v: function(q, k, v, is_causal=True),
        heads_first(functools.partial(F.scaled_dot_product_attention, is_causal=True)),
        shape,
        shape,
        shape,
    )
