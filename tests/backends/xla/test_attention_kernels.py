"""JAX's attention for TPUs, by Pallas's interpreter, against PyTorch's on the CPU."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuse.backends import precision
from fuse.backends.xla.platform import Attention
from fuse.backends.xla.rules.registry import RuleContext
from fuse.backends.xla.tpu import attention
from fuse.backends.xla.tpu.masks import Mask
from fuse.backends.xla.tpu.platform import TpuPlatform
from tests.backends.rule_harness import RULES, to_array, to_tensor
from tests.backends.test_rules_attention import FORWARD
from tests.backends.xla.attention_cases import tensors

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
"""Of the largest number. In bfloat16 PyTorch's own results are up to 1e-2 away from exact ones."""
CASES = (
    # batch, heads, groups, queries, keys, width, causal, scale
    (2, 2, 2, 256, 256, 64, True, None),
    (1, 4, 2, 128, 128, 128, True, 0.3),
    (1, 2, 1, 128, 384, 80, False, None),
    (1, 1, 1, 640, 640, 32, True, None),
    (1, 1, 1, 128, 128, 256, False, None),
)


@pytest.fixture(autouse=True)
def any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few scores are worth the kernels, which are interpreted."""
    monkeypatch.setattr(attention, "LEAST", {"default": 0, "highest": 0})
    for name in ("attend", "attend_gradient"):
        function = functools.partial(getattr(attention, name), interpret=True)
        monkeypatch.setattr(attention, name, function)


def close(found: jax.Array, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    assert found.shape == wanted.shape
    limit = TOLERANCE[dtype] * float(wanted.abs().max())
    torch.testing.assert_close(to_tensor(found).double(), wanted.double(), atol=limit, rtol=0)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_logarithm_and_gradients(case: Any, dtype: torch.dtype) -> None:
    *qkv, grad = tensors(case, dtype)
    *_, causal, scale = case
    exact = [one.double().requires_grad_() for one in qkv]
    options = {"is_causal": causal, "scale": scale}
    grouped = case[1] != case[2]
    output = F.scaled_dot_product_attention(*exact, enable_gqa=grouped, **options)
    output.backward(grad.double())
    repeated = [one.detach().repeat_interleave(case[1] // one.shape[1], 1) for one in exact]
    logsumexp = getattr(torch.ops.aten, FORWARD)(*repeated, 0.0, causal, scale=scale)[1]
    platform = TpuPlatform()
    with jax.enable_x64(True):
        q, k, v = map(to_array, qkv)
        asked = Attention(q, k, v, causal, case[5] ** -0.5 if scale is None else scale)
        found = platform.attention(asked)
        assert found is not None
        grads = platform.attention_gradient(asked, to_array(grad), *found)
        assert grads is not None
    assert (found[0].dtype, found[1].dtype) == (q.dtype, jnp.float32)
    close(found[0], output.detach(), dtype)
    close(found[1], logsumexp, dtype)
    for one, wanted in zip(grads, exact, strict=True):
        assert one.dtype == q.dtype
        assert wanted.grad is not None
        close(one, wanted.grad, dtype)


def test_a_scale_that_varies_is_an_array_of_64_bits() -> None:
    *qkv, grad = tensors((1, 1, 1, 128, 128, 64), torch.float32)

    def run(scale: Any, *arrays: jax.Array) -> list[jax.Array]:
        asked = Attention(*arrays[:3], True, scale)
        output, logarithm = attention.attend(asked)
        return [output, *attention.attend_gradient(asked, arrays[3], output, logarithm)]

    with jax.enable_x64(True):
        arrays = list(map(to_array, (*qkv, grad)))
        wanted = run(0.3, *arrays)
        found = jax.jit(run)(jnp.asarray(0.3, jnp.float64), *arrays)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_rules_call_them_and_write_what_they_do_not_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    covered = attention.covered
    monkeypatch.setattr(
        attention,
        "covered",
        lambda asked: calls.append((found := covered(asked)) is not None) or found,
    )
    *qkv, grad = tensors((1, 2, 2, 128, 128, 64), torch.float32)
    forward = getattr(torch.ops.aten, FORWARD)
    for length, bias, fits in ((128, None, True), (96, None, False), (128, True, False)):
        given = [one[:, :, :length] for one in (*qkv, grad)]
        mask = None if bias is None else torch.randn(length, length)
        expected = forward(*given[:3], 0.0, False, attn_mask=mask)
        context = RuleContext((), "float32", platform=TpuPlatform())
        with jax.enable_x64(True):
            arrays = list(map(to_array, given))
            added = None if mask is None else to_array(mask)
            found = RULES[FORWARD](context, *arrays[:3], 0.0, False, attn_mask=added)
            RULES[f"{FORWARD}_backward"](
                context, arrays[3], *arrays[:3], *found, 0.0, False, attn_mask=added
            )
        torch.testing.assert_close(to_tensor(found[0]), expected[0])
        torch.testing.assert_close(to_tensor(found[1]), expected[1])
        assert calls == [fits] * 2
        calls.clear()


def asked(
    *shapes: tuple[int, ...], dtype: str = "bfloat16", causal: bool = True, keys: str = ""
) -> Attention:
    query, key, value = (shapes * 3)[:3] if len(shapes) == 1 else shapes
    made = jax.ShapeDtypeStruct(query, dtype), jax.ShapeDtypeStruct(key, keys or dtype)
    value_ = jax.ShapeDtypeStruct(value, dtype)
    return Attention(*made, value_, causal, 1.0)  # type: ignore[arg-type]


LONG = (1, 8, 1024, 64)


@pytest.mark.parametrize(
    "call",
    [
        asked((8, 1024, 64)),
        asked((1, 8, 1000, 64)),
        asked((1, 8, 1024, 512)),
        asked((0, 8, 1024, 64)),
        asked(LONG, dtype="float16"),
        asked(LONG, dtype="float64"),
        asked(LONG, keys="float32"),
        asked(LONG, (1, 3, 1024, 64), (1, 3, 1024, 64)),
        asked(LONG, LONG, (1, 8, 1024, 128)),
        asked(LONG, (1, 8, 2048, 64), (1, 8, 2048, 64)),
        asked(LONG, (2, 8, 1024, 64), (2, 8, 1024, 64)),
    ],
)
def test_what_is_not_known_to_be_covered_is_written_out(call: Attention) -> None:
    assert attention.covered(asked(LONG))
    assert not attention.covered(call)
    assert TpuPlatform().attention(call) is None


def test_few_scores_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 twice as many are few; the setting that makes products of bfloat16 counts."""
    monkeypatch.undo()
    assert attention.covered(asked((1, 8, 2048, 64)))
    assert not attention.covered(asked((1, 7, 2048, 64)))
    assert not attention.covered(asked((1, 8, 2048, 64), dtype="float32"))
    assert attention.covered(asked((1, 16, 2048, 64), dtype="float32"))
    monkeypatch.setattr(attention, "of_products", lambda: "medium")
    assert attention.covered(asked((1, 8, 2048, 64), dtype="float32"))


def test_without_jax_s_gradient_it_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it has other parameters, or no such name; the forward kernel is called there too."""
    splash = attention._splash()
    assert splash is not None and splash.gradient is not None
    monkeypatch.setattr(splash.kernel, "_splash_attention_bwd", lambda *given: None)
    attention._splash.cache_clear()
    try:
        assert not attention.has_gradient()
        call = asked(LONG)
        assert attention.covered(call)
        array = jnp.zeros(())
        assert TpuPlatform().attention_gradient(call, array, array, array) is None
    finally:
        monkeypatch.undo()
        attention._splash.cache_clear()
    assert attention.has_gradient()


def test_products_are_as_exact_as_pytorch_s_setting_asks() -> None:
    """In the program: float32 is multiplied as such, unless "medium" is set; bfloat16 as it is."""
    call = asked((1, 1, 128, 64), dtype="float32")

    def text() -> str:
        def run(*qkv: jax.Array) -> Any:
            return attention.attend.func(Attention(*qkv, False, 1.0))  # type: ignore[attr-defined]

        return str(jax.make_jaxpr(run)(*call[:3]))

    assert "Precision.HIGHEST" in text()
    before = precision.own()
    precision.set_own("bf16")
    try:
        assert "HIGHEST" not in text()
    finally:
        precision.set_own(before)


def test_masks_are_arrays_of_the_host_though_made_while_tracing() -> None:
    attention._kernel.cache_clear()
    given = asked((1, 1, 256, 64), dtype="float32")
    jax.eval_shape(lambda *qkv: attention.attend(Attention(*qkv, True, 1.0)), *given[:3])
    kernel = attention._kernel(Mask(256, 256, True), True)
    leaves = jax.tree.leaves((kernel.fwd_mask_info, kernel.dq_mask_info, kernel.dkv_mask_info))
    assert all(not isinstance(leaf, jax.Array) for leaf in leaves)
    assert any(isinstance(leaf, np.ndarray) for leaf in leaves)


ROWS, COLUMNS = np.indices((384, 384))
WINDOW = (ROWS >= COLUMNS) & (ROWS - COLUMNS < 100)


def additive(least: float) -> np.ndarray:
    return np.where(WINDOW, 0, np.float32(least))


@pytest.mark.parametrize(
    ("bias", "causal"),
    [
        (WINDOW, False),
        (ROWS - COLUMNS < 100, True),
        (np.broadcast_to(WINDOW, (1, 2, 384, 384)), False),
        (additive(-np.inf), False),
        (additive(float(np.finfo(np.float32).min)), False),
        ((ROWS // 128 == COLUMNS // 128)[:1] | (ROWS >= 0), False),
        (COLUMNS[:1] < 200, False),
    ],
    ids=["window", "causal too", "of heads", "infinity", "least", "all", "of keys"],
)
def test_a_mask_that_is_known_and_its_gradients(bias: np.ndarray, causal: bool) -> None:
    *qkv, grad = tensors((1, 2, 1, 384, 384, 32), torch.float32)
    mask = torch.from_numpy(np.broadcast_to(bias, (*bias.shape[:-2], 384, 384)).copy())
    mask = torch.where(mask, 0, -torch.inf) if mask.dtype == torch.bool else mask
    exact = [one.double().requires_grad_() for one in qkv]
    past = torch.where(torch.ones(384, 384).tril().bool() | (not causal), 0, -torch.inf)
    output = F.scaled_dot_product_attention(*exact, mask.double() + past, enable_gqa=True)
    output.backward(grad.double())
    platform = TpuPlatform()
    with jax.enable_x64(True):
        q, k, v = map(to_array, qkv)
        known = Attention(q, k, v, causal, 32**-0.5, jnp.asarray(bias), False, lambda: bias)
        found = platform.attention(known)
        assert found is not None
        grads = platform.attention_gradient(known, to_array(grad), *found)
        assert grads is not None
        assert platform.attention(known._replace(constant=lambda: None)) is None
    close(found[0], output.detach(), torch.float32)
    for one, wanted in zip(grads, exact, strict=True):
        assert wanted.grad is not None
        close(one, wanted.grad, torch.float32)


@pytest.mark.parametrize(
    "bias",
    [
        WINDOW & (ROWS != 5),
        np.stack([WINDOW, ROWS >= COLUMNS])[None],
        additive(-1.0),
        np.where(WINDOW, 0.5, -np.inf).astype(np.float32),
    ],
    ids=["an empty row", "by head", "a number", "a number that is seen"],
)
def test_other_masks_are_left_to_the_rule(bias: np.ndarray) -> None:
    q = jnp.zeros((1, 2, 384, 32))
    known = Attention(q, q, q, False, 1.0, jnp.asarray(bias), False, lambda: bias)
    assert TpuPlatform().attention(known) is None


def test_blocks_of_a_mask() -> None:
    window = Mask.of(WINDOW)
    assert (window.blocks(128, 128), Mask(384, 384, True).blocks(128, 128)) == (5, 6)
    assert Mask(384, 256).blocks(128, 128) == 6
