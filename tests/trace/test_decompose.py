"""PyTorch's decompositions as lists of steps, run again and compared with the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuse.trace.decompose import CannotDecompose, Decomposition, Ref, decompose, spec_of
from fuse.trace.functional import find_overload


def run(found: Decomposition, tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """What the steps compute, by PyTorch's own kernels."""
    values = dict(enumerate(tensors))
    for number, (spec, content) in found.constants:
        values[number] = torch.tensor(content, dtype=getattr(torch, spec.dtype))

    def resolve(value: Any) -> Any:
        if isinstance(value, Ref):
            return values[value.index]
        if isinstance(value, list | tuple):
            return [resolve(item) for item in value]
        if isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype):
            return getattr(torch, value)
        return value

    for step in found.steps:
        keyword = {key: resolve(value) for key, value in step.keyword}
        result = find_overload(step.target)(*map(resolve, step.positional), **keyword)
        made = list(result) if isinstance(result, list | tuple) else [result]
        made = [tensor for tensor in made if tensor is not None]
        for number, tensor, spec in zip(step.results, made, step.specs, strict=True):
            assert spec_of(tensor) == spec
            values[number] = tensor
    return [None if number is None else values[number] for number in found.results]


def meta(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.to("meta") for tensor in tensors]


def rules_without(*names: str) -> Callable[[str], bool]:
    """Every operator has a rule but these."""
    return lambda name: name not in names


X, Y = torch.linspace(-1, 2, 6).view(2, 3), torch.linspace(1, 2, 6).view(2, 3)
CASES: dict[str, tuple[list[torch.Tensor], Callable[[list[torch.Tensor]], Any]]] = {
    "silu_backward": ([X, Y], lambda t: torch.ops.aten.silu_backward(*t)),
    "addcmul": ([X, Y, X], lambda t: torch.ops.aten.addcmul(*t, value=0.5)),
    "native_layer_norm": (
        [X, Y[0], X[0]],
        lambda t: torch.ops.aten.native_layer_norm(t[0], [3], t[1], t[2], 1e-5),
    ),
    "_softmax": ([X], lambda t: torch.ops.aten._softmax(t[0], 1, False)),
    "smooth_l1_loss": ([X, Y], lambda t: torch.ops.aten.smooth_l1_loss(*t)),
    "native_group_norm_backward": (
        [X.view(1, 2, 3), X.view(1, 2, 3), X[:, :1], Y[:, :1], X[0, :2]],
        lambda t: torch.ops.aten.native_group_norm_backward(
            *t, 1, 2, 3, 1, [True, False, True]
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_steps_compute_what_the_operator_does(name: str):
    tensors, call = CASES[name]
    if name == "native_group_norm_backward":
        tensors = [*tensors[:2], X[:1, :1], Y[:1, :1], X[0, :2]]
    found = decompose(find_overload(name), meta(*tensors), call, rules_without(name))
    assert all(step.target != name for step in found.steps) and found.inputs == len(tensors)
    expected = call(tensors)
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    for left, right in zip(run(found, tensors), expected, strict=True):
        if left is None or right is None:
            assert left is right
        else:
            torch.testing.assert_close(left, right)


def test_what_has_no_decomposition_says_what_is_missing():
    with pytest.raises(CannotDecompose, match="needs cholesky_inverse, which has no rule"):
        decompose(
            find_overload("cholesky_inverse"),
            meta(torch.eye(2)),
            lambda t: torch.ops.aten.cholesky_inverse(t[0]),
            rules_without("cholesky_inverse"),
        )


def test_an_error_of_the_decomposition_is_passed_on_as_its_reason():
    def broken(tensors: list[torch.Tensor]) -> torch.Tensor:
        raise ValueError("no such luck")

    with pytest.raises(CannotDecompose, match="ValueError: no such luck"):
        decompose(find_overload("relu"), meta(X), broken, rules_without("relu"))


def test_the_same_tensor_twice_is_two_inputs():
    found = decompose(
        find_overload("addcmul"),
        meta(X, X, X),
        lambda t: torch.ops.aten.addcmul(*t),
        rules_without("addcmul"),
    )
    torch.testing.assert_close(run(found, [X, Y, X + 1])[0], torch.addcmul(X, Y, X + 1))
