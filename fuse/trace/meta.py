"""Shape inference for operators that PyTorch has no meta kernel for.

Registered with PyTorch's dispatcher at the Meta key when the device starts, so that the
recorder infers these operators like all others. What PyTorch infers is kept, except where
``_REPLACED`` says that it does not cover the operator.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import _meta_registrations as inference
from torch._decomp import decompositions
from torch._prims_common import suggest_memory_format

from fuse.trace import meta_jagged, meta_nearest, meta_out, meta_products

_REPLACED = frozenset(
    {
        "_thnn_fused_lstm_cell",
        "_fft_c2c",
        "_fft_c2r",
        "_fft_r2c",
        "_grouped_mm",
        "baddbmm.dtype",
        "embedding",
        "histc",
        "max_unpool2d",
    }
)
Function = TypeVar("Function", bound=Callable[..., object])
_TABLE: dict[str, Callable[..., object]] = {}


def _meta(*names: str) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        _TABLE.update(dict.fromkeys(names, function))
        return function

    return register


@_meta("_aminmax")
def _aminmax(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return self.new_empty(()), self.new_empty(())


@_meta("_aminmax.dim")
def _aminmax_dim(
    self: torch.Tensor, dim: int, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.amin(self, dim, keepdim), torch.amax(self, dim, keepdim)


@_meta("_cummax_helper", "_cummin_helper")
def _cum_helper(self: torch.Tensor, values: torch.Tensor, indices: torch.Tensor, dim: int) -> None:
    """Writes into ``values`` and ``indices``, which have their sizes already."""


@_meta("_logcumsumexp")
def _logcumsumexp(self: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty_like(self, memory_format=torch.contiguous_format)


@_meta("_standard_gamma_grad", "_dirichlet_grad", "_sample_dirichlet", "binomial")
def _like_first(self: torch.Tensor, *_others: object, **_generator: object) -> torch.Tensor:
    return self.new_empty(self.shape)


@_meta("geqrf")
def _geqrf(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # LAPACK's packed factors: column after column.
    packed = torch.empty_like(self.mT, memory_format=torch.contiguous_format).mT
    return packed, self.new_empty((*self.shape[:-2], min(self.shape[-2:])))


@_meta("histc")
def _histc(self: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    # PyTorch's own inference refuses integers, which its accelerators count and its CPU does not.
    if bins <= 0:
        raise RuntimeError(f"histc(): bins must be > 0, but got {bins}")
    if max < min:
        raise RuntimeError("histc(): max must be larger than min")
    if min != max and not (math.isfinite(min) and math.isfinite(max)):
        raise RuntimeError(f"histc(): range of [{min}, {max}] is not finite")
    if self.dtype == torch.bool or self.is_complex():
        raise NotImplementedError("histc() counts real numbers alone")
    return self.new_empty((bins,))


@_meta("_thnn_fused_lstm_cell")
def _lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    # PyTorch's own inference needs the biases; a cell without them is as good.
    states = [torch.empty_like(cx, memory_format=torch.contiguous_format) for _ in range(2)]
    workspace = torch.empty_like(input_gates, memory_format=torch.contiguous_format)
    return *states, workspace


@_meta("_thnn_fused_gru_cell")
def _gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    # The workspace keeps reset, input and new gates, the hidden part of the new gate, and hx.
    workspace = hx.new_empty((hx.shape[0], hx.shape[1] * 5))
    return torch.empty_like(hx, memory_format=torch.contiguous_format), workspace


@_meta("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    batch, hidden = workspace.shape[0], workspace.shape[1] // 5
    gates = [workspace.new_empty((batch, 3 * hidden)) for _ in range(2)]
    bias = [workspace.new_empty((3 * hidden,)) if has_bias else None for _ in range(2)]
    return *gates, torch.empty_like(grad_hy, memory_format=torch.contiguous_format), *bias


@_meta(
    "fractional_max_pool3d_backward",
    "multi_margin_loss_backward",
    "multilabel_margin_loss_backward",
)
def _like_second(
    grad_output: torch.Tensor, self: torch.Tensor, *_: object, **__: object
) -> torch.Tensor:
    return torch.empty_like(self, memory_format=torch.contiguous_format)


@_meta("glu_jvp")
def _glu_jvp(glu: torch.Tensor, x: torch.Tensor, dx: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty_like(glu)


@_meta("_ctc_loss_backward")
def _ctc_loss_backward(
    grad: torch.Tensor, log_probs: torch.Tensor, *_: object, **__: object
) -> torch.Tensor:
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


@_meta("_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_", "_fused_adagrad_.tensor_lr")
@_meta("_fused_adam_.tensor_lr", "_fused_adamw_.tensor_lr")
def _writes_in_place(*_: object, **__: object) -> None:
    """Writes into lists whose tensors have their sizes already."""


_as_on_cpu = dict(vars(inference), device_hint=lambda _: "cpu")
"""The names that PyTorch's inference sees. It takes meta tensors for CUDA's; told otherwise,
it gives the results of Fourier transforms the strides that the CPU's have."""


def _rebind(name: str) -> Callable[..., object]:
    own = inspect.unwrap(getattr(inference, name))
    function = FunctionType(own.__code__, _as_on_cpu, name, own.__defaults__, own.__closure__)
    function.__kwdefaults__ = own.__kwdefaults__
    _as_on_cpu[name] = function
    return function


for _name in ("meta_fft_c2c", "meta_fft_r2c", "meta_fft_c2r"):
    _meta(_name.replace("meta", ""))(_rebind(_name))


@_meta("embedding")
def _embedding(
    weight: torch.Tensor, indices: torch.Tensor, *arguments: Any, **options: Any
) -> torch.Tensor:
    # PyTorch 2.11's inference takes indices that its kernels refuse.
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {indices.dtype} instead"
        )
    result: torch.Tensor = inference.embedding(weight, indices, *arguments, **options)
    return result


@_meta("_scaled_dot_product_fused_attention_overrideable_backward")
def _attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    *_: object,
    **__: object,
) -> tuple[torch.Tensor | None, ...]:
    # PyTorch 2.11 has none.
    like = (torch.empty_like(query), torch.empty_like(key), torch.empty_like(value))
    return *like, None if attn_bias is None else torch.empty_like(attn_bias)


@_meta("max_unpool2d")
def _max_unpool2d(
    self: torch.Tensor, indices: torch.Tensor, output_size: list[int]
) -> torch.Tensor:
    result: torch.Tensor = decompositions.max_unpool2d(self, indices, output_size)
    return result.contiguous(memory_format=suggest_memory_format(self))


def replaced() -> dict[str, Callable[..., object]]:
    """By overload, the inference that stands in for PyTorch's own where that does not cover it."""
    tables = _TABLE | meta_products.TABLE
    return {name: tables[name] for name in _REPLACED if name in tables}


def register() -> torch.library.Library:
    """Register what is missing; the registrations last as long as the returned library."""
    library = torch.library.Library("aten", "IMPL", "Meta")
    tables = _TABLE | meta_jagged.TABLE | meta_nearest.TABLE | meta_out.TABLE | meta_products.TABLE
    for name, function in tables.items():
        known = torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta")
        if not known or name in _REPLACED or name in meta_nearest.TABLE:
            library.impl(name, function, allow_override=True)
    return library


speak_unless = meta_out.speak_unless
