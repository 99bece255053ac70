"""cuDNN's attention as its documentation has it, computed by NumPy in the place of XLA's calls.

What it computes, and of which operands, it takes from a call's name and from the configuration that
XLA would give to cuDNN.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

NAMES = {
    "__cudnn$fmhaSoftmax": (False, False),
    "__cudnn$fmhaScaleBiasSoftmax": (True, False),
    "__cudnn$fmhaSoftmaxBackward": (False, True),
    "__cudnn$fmhaScaleBiasSoftmaxBackward": (True, True),
}
"""Whether a kernel takes a bias, and whether it computes gradients."""


@dataclass
class Cudnn:
    """Stands for ``jax.ffi.ffi_call``; ``calls`` are the names and configurations it was given."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def ffi_call(
        self, name: str, results: Sequence[jax.ShapeDtypeStruct], **options: Any
    ) -> Callable[..., list[jax.Array]]:
        config = json.loads(options["legacy_backend_config"])["cudnn_fmha_backend_config"]
        self.calls.append((name, config))
        run = functools.partial(_run, *NAMES[name], config, results)
        return functools.partial(jax.pure_callback, run, results)


@dataclass
class _Scores:
    """What a configuration says of the scores ``[batch, heads, L, S]``."""

    config: dict[str, Any]
    bias: np.ndarray | None

    def __call__(self, query: np.ndarray, key: np.ndarray) -> np.ndarray:
        found = query @ key.swapaxes(2, 3) * self.config["fmha_scale"]
        sizes = self.config["intermediate_tensor_shape"]["dimensions"]
        assert found.shape == tuple(map(int, sizes))
        if self.bias is not None:
            assert self.bias.shape[2:] == found.shape[2:]
            found = found + self.bias
        if self.config["mask_type"] == "CAUSAL":
            found = np.where(np.tri(*found.shape[2:], dtype=bool), found, -np.inf)
        return found


def _run(
    has_bias: bool,
    backward: bool,
    config: dict[str, Any],
    results: Sequence[jax.ShapeDtypeStruct],
    *operands: jax.Array,
) -> list[np.ndarray]:
    given = [np.asarray(one).astype(float) for one in operands]
    wide = [0, 1, 2, 4, 5 + has_bias] if backward else [0, 1, 2]
    key = "bmm2_grad_gemm2_dot_dimension_numbers" if backward else "bmm1_dot_dimension_numbers"
    if config[key]["rhs_batch_dimensions"] == ["0", "2"]:
        for place in wide:
            given[place] = given[place].transpose(0, 2, 1, 3)
    assert len(given) == max(wide) + 1 + (has_bias and not backward)
    bias = given[5 if backward else 3] if has_bias else None
    each = given[0].shape[1] // given[1].shape[1]
    query, key_, value = given[0], given[1].repeat(each, 1), given[2].repeat(each, 1)
    scores = _Scores(config, bias)(query, key_)
    made = (
        _gradients(scores, query, key_, value, given, config)
        if backward
        else _attend(scores, value)
    )
    found = [
        one.reshape(like.shape[0], like.shape[1], -1, *like.shape[2:]).sum(2)
        if one.ndim == 4
        else one
        for one, like in zip(made, results, strict=False)
    ]
    found.append(np.zeros(0))
    return [one.astype(like.dtype) for one, like in zip(found, results, strict=True)]


def _attend(scores: np.ndarray, value: np.ndarray) -> list[np.ndarray]:
    top = scores.max(-1, keepdims=True)
    sums = np.log(np.exp(scores - top).sum(-1, keepdims=True)) + top
    return [np.exp(scores - sums) @ value, sums[..., 0]]


def _gradients(
    scores: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    given: list[np.ndarray],
    config: dict[str, Any],
) -> list[np.ndarray]:
    sums, grad, output = given[3], given[4], given[-1]
    weights = np.exp(scores - sums[..., None])
    change = grad @ value.swapaxes(2, 3) - (grad * output).sum(-1, keepdims=True)
    change = weights * change * config["fmha_scale"]
    return [change @ key, change.swapaxes(2, 3) @ query, weights.swapaxes(2, 3) @ grad]
