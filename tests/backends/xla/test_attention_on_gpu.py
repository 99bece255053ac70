"""cuDNN's attention as a GPU's programs call it: against JAX's own calls, and in numbers."""

from __future__ import annotations

import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
import torch.nn.functional as F
from jax._src.cudnn import fused_attention_stablehlo as jax_attention

from fuse.backends.xla.gpu import attention
from fuse.backends.xla.gpu.platform import GpuPlatform
from fuse.backends.xla.platform import Attention
from fuse.backends.xla.rules.context import Place
from fuse.backends.xla.rules.registry import RuleContext
from fuse.trace.spec import View
from tests.backends.rule_harness import RULES, to_array, to_tensor
from tests.backends.test_rules_attention import FORWARD
from tests.backends.xla.attention_cases import tensors
from tests.backends.xla.cudnn import Cudnn

TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""Of the largest number."""
HOPPER, AMPERE = (9, 0), (8, 0)
CASES = (
    # batch, heads, groups, queries, keys, width, causal, scale
    (2, 2, 2, 16, 16, 64, True, None),
    (1, 4, 2, 12, 12, 128, True, 0.3),
    (1, 2, 1, 7, 19, 80, False, None),
    (1, 1, 1, 10, 10, 256, True, None),
    (2, 2, 2, 9, 13, 8, True, None),
)


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Cudnn:
    """Few scores are worth the kernels, which are NumPy's here."""
    made = Cudnn()
    monkeypatch.setattr(attention, "LEAST", 0)
    monkeypatch.setattr(jax.ffi, "ffi_call", made.ffi_call)
    return made


def close(found: jax.Array, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    assert found.shape == wanted.shape
    limit = TOLERANCE[dtype] * float(wanted.abs().max())
    torch.testing.assert_close(to_tensor(found).double(), wanted.double(), atol=limit, rtol=0)


def both_passes(
    case: Any, dtype: torch.dtype, inside: bool, mask: torch.Tensor | None = None
) -> None:
    """Output, logarithm and gradients, against PyTorch's in float64."""
    *qkv, grad = tensors(case, dtype)
    *_, causal, scale = case
    exact = [one.double().requires_grad_() for one in qkv]
    wide = mask if mask is None or mask.dtype == torch.bool else mask.double()
    options: Any = {"is_causal": causal, "scale": scale, "attn_mask": wide}
    output = F.scaled_dot_product_attention(*exact, enable_gqa=True, **options)
    output.backward(grad.double())
    platform = GpuPlatform(HOPPER)
    with jax.enable_x64(True):
        q, k, v = map(to_array, qkv)
        scale = case[5] ** -0.5 if scale is None else scale
        bias = None if mask is None else to_array(mask)
        asked = Attention(q, k, v, causal, scale, bias, inside)
        found = platform.attention(asked)
        assert found is not None
        grads = platform.attention_gradient(asked, to_array(grad), *found)
        assert grads is not None
    assert (found[0].dtype, found[1].dtype) == (q.dtype, jnp.float32)
    close(found[0], output.detach(), dtype)
    for one, wanted in zip(grads, exact, strict=True):
        assert one.dtype == q.dtype
        assert wanted.grad is not None
        close(one, wanted.grad, dtype)


@pytest.mark.parametrize("inside", (False, True))
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_and_gradients(case: Any, dtype: torch.dtype, inside: bool, cudnn: Cudnn) -> None:
    both_passes(case, dtype, inside)
    assert [name for name, _ in cudnn.calls] == [
        "__cudnn$fmhaSoftmax",
        "__cudnn$fmhaSoftmaxBackward",
    ]
    assert [config["force_deterministic"] for _, config in cudnn.calls] == [False, True]


def masks() -> dict[str, torch.Tensor]:
    added = torch.randn(12, 18, generator=torch.Generator().manual_seed(1))
    hidden = added.clone()
    hidden[2], hidden[:, 6] = -float("inf"), -float("inf")
    lengths = torch.arange(18) < torch.tensor([[[[3]]], [[[18]]]])
    return {
        "added to every head": added,
        "of each sample": added.expand(2, 1, 12, 18) * torch.tensor([1.0, 2.0]).view(2, 1, 1, 1),
        "of keys": added[:1],
        "a query sees none": hidden,
        "truth, a query sees none": hidden > 0,
        "padded keys": lengths,
        "the least number": torch.where(hidden > 0, 0.0, torch.finfo(torch.float16).min),
    }


@pytest.mark.parametrize("inside", (False, True))
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", masks())
def test_biases(name: str, dtype: torch.dtype, inside: bool, cudnn: Cudnn) -> None:
    mask = masks()[name]
    mask = mask if mask.dtype == torch.bool else mask.to(dtype)
    both_passes((2, 4, 2, 12, 18, 16, False, None), dtype, inside, mask)
    assert [name for name, _ in cudnn.calls] == [
        "__cudnn$fmhaScaleBiasSoftmax",
        "__cudnn$fmhaScaleBiasSoftmaxBackward",
    ]


def test_a_query_that_sees_no_key_is_zero_and_gives_no_gradient(cudnn: Cudnn) -> None:
    *qkv, grad = tensors((1, 1, 1, 4, 6, 8, False, None), torch.bfloat16)
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[1] = False
    asked = Attention(*map(to_array, qkv), False, 1.0, to_array(mask))
    output, logarithm = attention.attend(asked)
    found = attention.attend_gradient(asked, to_array(grad), output, logarithm)
    assert not output[0, 0, 1].any() and logarithm[0, 0, 1] == 0
    assert not found[0][0, 0, 1].any() and found[0].any()


def _custom_calls(lowered: Any) -> list[tuple[Any, ...]]:
    """Name, configuration, layouts and types of each of cuDNN's calls in a program for CUDA."""
    found = []
    for line in lowered.as_text().splitlines():
        if "@__cudnn" not in line:
            continue
        text = re.search(r'backend_config = "((?:[^"\\]|\\.)*)"', line)
        assert text is not None
        config = json.loads(re.sub(r"\\([0-9A-F]{2})", lambda one: chr(int(one[1], 16)), text[1]))
        layouts = re.findall(r"dense<\[?([\d, ]*)\]?>", line)
        name = re.search(r"@(__cudnn\$\w+)", line)
        version = re.search(r"api_version = (\d)", line)
        assert name is not None and version is not None
        types = line.rpartition(" : ")[2]
        found.append((name[1], config, layouts, version[1], types.partition(" loc(")[0]))
    return found


def _known(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration without what may be left out, nor what JAX does not ask for."""
    made = dict(config["cudnn_fmha_backend_config"])
    made.pop("force_deterministic", None)
    shape = dict(made["intermediate_tensor_shape"])
    made["intermediate_tensor_shape"] = {
        key: value for key, value in shape.items() if key not in ("tuple_shapes", "layout")
    }
    return {**made, "order": shape["layout"]["minor_to_major"]}


@pytest.mark.parametrize("biased", (False, True))
@pytest.mark.parametrize("inside", (False, True))
def test_calls_are_those_of_jax(
    inside: bool, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which cannot run here either: what is compared is the program that XLA is given for CUDA."""
    monkeypatch.setattr(jax_attention, "check_cudnn_version", lambda: 91000)
    layout, order = ("BTNH", (0, 2, 1, 3)) if inside else ("BNTH", (0, 1, 2, 3))
    kind = jax_attention.MaskType.NO_MASK if biased else jax_attention.MaskType.CAUSAL

    def theirs(q: Any, k: Any, v: Any, grad: Any, bias: Any) -> Any:
        given = [one.transpose(order) for one in (q, k, v)]
        call = lambda *qkv: jax_attention.dot_product_attention(  # noqa: E731
            *qkv, bias, scale=0.25, mask_type=kind, qkv_layout=layout
        )
        output, gradient = jax.vjp(call, *given)
        return output, gradient(grad.transpose(order))

    def ours(q: Any, k: Any, v: Any, grad: Any, bias: Any) -> Any:
        asked = Attention(q, k, v, not biased, 0.25, bias, inside)
        output, logarithm = attention.attend(asked)
        return output, attention.attend_gradient(asked, grad, output, logarithm)

    wide, narrow = ((2, heads, 128, 64) for heads in (4, 2))
    shapes = [*(wide, narrow, narrow, wide), (1, 4, 128, 128)]
    specs = [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in shapes]
    if not biased:
        specs[-1] = None  # type: ignore[call-overload]
    calls = [
        _custom_calls(jax.jit(one).trace(*specs).lower(lowering_platforms=("cuda",)))
        for one in (theirs, ours)
    ]
    assert [len(one) for one in calls] == [2, 2]
    for their, our in zip(*calls, strict=True):
        assert our[2]
        assert our[0] == their[0]
        assert _known(our[1]) == _known(their[1])
        assert our[3] == their[3]
        if not (biased and our[0].endswith("Backward")):  # where JAX wants the bias's gradient
            assert (our[2], our[4]) == (their[2], their[4])


def asked(
    *shapes: tuple[int, ...],
    dtype: str = "bfloat16",
    causal: bool = True,
    bias: tuple[int, ...] | None = None,
    scale: Any = 1.0,
) -> Attention:
    query, key, value = (shapes * 3)[:3] if len(shapes) == 1 else shapes
    made = [jax.ShapeDtypeStruct(one, dtype) for one in (query, key, value)]
    added = None if bias is None else jax.ShapeDtypeStruct(bias, dtype)
    return Attention(*made, causal, scale, added)  # type: ignore[arg-type]


LONG = (8, 12, 1024, 64)


@pytest.mark.parametrize(
    "call",
    [
        asked((12, 1024, 64)),
        asked((8, 12, 1024, 60)),
        asked((8, 12, 1024, 264)),
        asked((0, 12, 1024, 64)),
        asked((1, 1, 512, 64)),
        asked((8, 12, 1, 64), (8, 12, 1024, 64), (8, 12, 1024, 64)),
        asked(LONG, dtype="float32"),
        asked(LONG, dtype="float64"),
        asked(LONG, (8, 5, 1024, 64), (8, 5, 1024, 64)),
        asked(LONG, LONG, (8, 12, 1024, 128)),
        asked(LONG, (4, 12, 1024, 64), (4, 12, 1024, 64)),
        asked(LONG, bias=(1024, 1024)),  # beside the causal mask
        asked((8, 12, 1023, 64), causal=False, bias=(1023, 1023)),
        asked((1, 1, 16384, 64), causal=False, bias=(16384, 16384)),
        asked(LONG, scale=jax.ShapeDtypeStruct((), "float64")),
    ],
)
def test_what_is_not_known_to_be_covered_is_written_out(call: Attention) -> None:
    assert attention.covered(asked(LONG), HOPPER)
    assert not attention.covered(call, HOPPER)
    assert GpuPlatform(HOPPER).attention(call) is None
    nothing: Any = None
    assert GpuPlatform(HOPPER).attention_gradient(call, nothing, nothing, nothing) is None


def test_what_a_gpu_covers_is_its_capability_s() -> None:
    wide = asked((8, 12, 1024, 256))
    assert [attention.covered(wide, one) for one in (HOPPER, AMPERE, (10, 0))] == [1, 0, 0]
    assert attention.covered(asked(LONG), AMPERE)
    assert not attention.covered(asked(LONG), (7, 5))
    assert GpuPlatform().attention(asked(LONG)) is None  # no NVIDIA's


@pytest.mark.parametrize("transposed", (False, True))
def test_rules_call_it_as_heads_lie(transposed: bool, cudnn: Cudnn) -> None:
    """Heads beside each other are read so: nothing is transposed in memory."""
    *qkv, grad = tensors((1, 2, 2, 8, 8, 16), torch.bfloat16)
    strides = (256, 16, 32, 1) if transposed else (256, 128, 16, 1)
    arrays = [to_array(one) for one in qkv]
    view = View("bfloat16", (1, 2, 8, 16), strides)
    places = {id(one): Place(None, view) for one in arrays}
    context = RuleContext((), "bfloat16", platform=GpuPlatform(HOPPER), places=places)
    output, logarithm = RULES[FORWARD](context, *arrays, 0.0, True)
    RULES[f"{FORWARD}_backward"](context, to_array(grad), *arrays, output, logarithm, 0.0, True)
    heads = [
        value["rhs_batch_dimensions"][1]
        for _, config in cudnn.calls
        for key, value in config.items()
        if key.startswith("bmm")
    ]
    assert set(heads) == {"2" if transposed else "1"}
    expected = F.scaled_dot_product_attention(*qkv, is_causal=True)
    torch.testing.assert_close(to_tensor(output), expected, atol=2e-2, rtol=2e-2)
