"""The checks of one entry of ``op_db``, each on one sample."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

import fuse
from tests.coverage import special
from tests.coverage.comparing import (
    Mismatch,
    compare_aliases,
    compare_metadata,
    compare_nest,
    compare_values,
    same_distribution,
)
from tests.coverage.record import NotApplicable
from tests.coverage.samples import (
    Call,
    Samples,
    inside_larger,
    like,
    narrowed,
    nothing,
    own_memory,
    widened,
    with_gaps,
)
from tests.coverage.transfer import Transfer, tensors_of

DRAWS = 60
FEW = 8


class Operator:
    """The checks of one entry; each takes one sample and raises ``Mismatch``.

    Attributes:
        given: the samples that there are.
    """

    def __init__(self, info: Any, key: str) -> None:
        self.info, self.key = info, key
        self.given = Samples(info)
        self.values = key not in special.UNINITIALISED
        self.loosen = special.TOLERANCE.get(key, 1.0)

    def call(self, sample: Any, device: str) -> Call:
        """The call of ``sample`` on ``device``, not made yet."""
        return Call(sample, device)

    def forward(self, sample: Any) -> None:
        """The results, or an error of the same kind."""
        expected, found = self.call(sample, "cpu"), self.call(sample, "tpu")
        try:
            right = expected(self.info)
        except Exception as error:  # noqa: BLE001  (the device has to refuse it likewise)
            _must_raise(type(error), lambda: found(self.info))
            return
        left = found(self.info)
        self.compare(sample, left, found, right, expected)

    def compare(self, sample: Any, left: Any, found: Call, right: Any, expected: Call) -> None:
        """Results, aliases, and the inputs as the call left them."""
        compare_nest(left, right, values=False)
        compare_aliases(left, found.inputs, right, expected.inputs)
        if not self.values:
            return
        if self.is_random(sample):
            self.draws(sample, left)
            return
        try:
            self.compare_values(sample, left, right)
        except Mismatch:
            wide = widened(sample)
            if wide is None:
                raise
            exact = self.call(wide, "cpu")(self.info)
            self.compare_values(sample, left, narrowed(exact, right))
        for one, other in zip(tensors_of(found.inputs), tensors_of(expected.inputs), strict=True):
            if other.layout == torch.strided:
                compare_values(one, other, "an input after the call: ", self.loosen)

    def compare_values(self, sample: Any, left: Any, right: Any) -> None:
        """The values of two results, where they are determined."""
        left, right = (self.without_freedom(sample, nest) for nest in (left, right))
        indexed = isinstance(right, tuple) or self.key == "op:argsort"
        if self.key in special.TIES and indexed and not sample.kwargs.get("stable"):
            self.compare_ties(sample, left, right)
        else:
            compare_nest_values(left, right, self.loosen)

    def without_freedom(self, sample: Any, result: Any) -> Any:
        """The result, or what of it is unique."""
        free = self.key in special.AMBIGUOUS
        return sample.output_process_fn_grad(result) if free else result

    def compare_ties(self, sample: Any, left: Any, right: Any) -> None:
        """Values, and indices by the values they lead to."""
        at = special.TIES[self.key]
        dim = sample.args[at] if len(sample.args) > at else sample.kwargs.get("dim", -1)
        source = sample.input.detach()
        *values, indices = tensors_of(right)
        *mine, found = tensors_of(left)
        for one, other in zip(mine, values, strict=True):
            compare_values(one, other, loosen=self.loosen)
        found = found.cpu()
        if indices.dtype != torch.int64 or not source.dim():
            compare_values(found, indices)
            return
        if indices.dim() < source.dim():
            indices, found = indices.unsqueeze(dim), found.unsqueeze(dim)
        compare_values(source.gather(dim, found), source.gather(dim, indices), "named values: ")
        if self.key in special.DISTINCT and bool((found.sort(dim).values.diff(dim=dim) == 0).any()):
            raise Mismatch("the indices name an element twice")

    def draws(self, sample: Any, left: Any) -> None:
        """A random operator: the same seed the same bits, and the CPU's distribution."""
        again = self.call(sample, "tpu")(self.info)
        for one, other in zip(tensors_of(left), tensors_of(again), strict=True):
            if not torch.equal(one.cpu(), other.cpu()) and not one.isnan().any().item():
                raise Mismatch("the same seed gives other numbers")
        results = []
        for device in ("tpu", "cpu"):
            pool: list[torch.Tensor] = []
            for number in range(DRAWS):
                drawn = self.call(sample, device).seeded(number, self.info)
                drawn = self.without_freedom(sample, drawn)
                pool += [_plain(t) for t in tensors_of(drawn)]
            results.append(pool)
        same_distribution(*results)

    def out(self, sample: Any) -> None:
        """Results written to ``out=``: of their size, with gaps, and empty."""
        right = self.call(sample, "cpu")(self.info)
        tensors = tensors_of(right)
        plain = isinstance(right, torch.Tensor) or (
            isinstance(right, tuple) and len(tensors) == len(right)
        )
        if not plain or not tensors:
            raise NotApplicable
        for make in (like, with_gaps, nothing):
            self.one_out(sample, [make(t) for t in tensors], right)

    def one_out(self, sample: Any, given: list[torch.Tensor], plain: Any) -> None:
        """The call with ``out=given``; ``plain`` is what it returns without."""
        single = isinstance(plain, torch.Tensor)
        results, outs = [], []
        problem: type[Exception] | None = None
        for device in ("cpu", "tpu"):
            out = Transfer(device)(given)
            call = self.call(sample, device)
            argument = out[0] if single else tuple(out)
            if problem is not None:
                _must_raise(problem, lambda: call(self.info, out=argument))  # noqa: B023
                return
            try:
                result = call(self.info, out=argument)
            except Exception as error:
                if device == "tpu":
                    raise
                problem = type(error)
                continue
            if any(a is not b for a, b in zip(tensors_of(result), out, strict=False)):
                raise Mismatch(f"{device} does not return the tensors given as out=")
            results.append(result)
            outs.append(out)
        compare_nest(outs[1], outs[0], values=False)
        for one, other in zip(outs[1], outs[0], strict=True):
            if one.stride() != other.stride() and other.numel():
                raise Mismatch(f"out= has strides {one.stride()} instead of {other.stride()}")
        if self.values and not self.is_random(sample):
            try:
                self.compare_values(sample, results[1], results[0])
            except Mismatch:
                # Some of the CPU's kernels (gelu, avg_pool3d, narrow_copy) write an out= with
                # gaps as if it had none: what the call without out= returns decides.
                if not self.contradicts(sample, results[0], plain):
                    raise
                self.compare_values(sample, _contiguous(results[1]), _contiguous(plain))

    def contradicts(self, sample: Any, out: Any, plain: Any) -> bool:
        """Whether the CPU's ``out=`` tensors differ from its own result without ``out=``."""
        try:
            self.compare_values(sample, _contiguous(out), _contiguous(plain))
        except Mismatch:
            return True
        return False

    def inplace(self, sample: Any) -> None:
        """The in-place form, on a tensor of its own and on a part of a larger one."""
        if not isinstance(sample.input, torch.Tensor):
            raise NotApplicable
        for arrange in (own_memory, inside_larger):
            self.one_inplace(sample, arrange)

    def one_inplace(self, sample: Any, arrange: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """The in-place form on an input that ``arrange`` laid out."""
        function = self.info.get_inplace()
        bases: list[torch.Tensor] = []
        problem: type[Exception] | None = None
        random = False
        for device in ("cpu", "tpu"):
            call = self.call(sample, device)
            call.input = arrange(call.input)
            target = call.input
            if problem is not None:
                _must_raise(problem, lambda: call(function))  # noqa: B023
                return
            try:
                result = call(function)
            except Exception as error:
                if device == "tpu":
                    raise
                problem = type(error)
                continue
            if result.shape != sample.input.shape:
                raise NotApplicable  # a CPU kernel that resizes what it is to write in place
            if result is not target:
                raise Mismatch(f"{device} does not return the tensor it writes")
            bases.append(target if target._base is None else target._base)
            random = random or (device == "cpu" and self._draws(sample, function, arrange))
        compare_metadata(bases[1], bases[0])
        if self.values and not random:
            compare_values(bases[1], bases[0], loosen=self.loosen)

    def is_random(self, sample: Any) -> bool:
        """Whether the CPU's result depends on the seed; of few numbers several draws are seen."""
        first = tensors_of(self.call(sample, "cpu").seeded(1, self.info))
        few = sum(t.numel() for t in first) <= FEW
        for seed in range(2, 10 if few else 3):
            other = tensors_of(self.call(sample, "cpu").seeded(seed, self.info))
            if any(_differ(left, right) for left, right in zip(first, other, strict=True)):
                return True
        return False

    def _draws(self, sample: Any, function: Any, arrange: Callable[..., Any]) -> bool:
        results = []
        for seed in (1, 2):
            call = self.call(sample, "cpu")
            call.input = arrange(call.input)
            results.append(call.seeded(seed, function))
        return _differ(results[0], results[1])

    def error(self, sample: Any) -> None:
        """An erroneous call: an error of the same kind, at the call."""
        try:
            self.call(sample, "cpu")(self.info)
        except Exception as error:  # noqa: BLE001  (its type is what is compared)
            of_data = any(text in str(error) for text in special.ERRORS_OF_DATA)
            with fuse.DebugEager() if of_data else contextlib.nullcontext():
                _must_raise(type(error), lambda: self.call(sample, "tpu")(self.info))


def compare_nest_values(left: Any, right: Any, loosen: float) -> None:
    """Values alone of two nests of one structure."""
    if loosen == 1.0:
        compare_nest(left, right)
        return
    for one, other in zip(tensors_of(left), tensors_of(right), strict=True):
        compare_values(one, other, loosen=loosen)


def _must_raise(kind: type[Exception], call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:
        if isinstance(error, kind):
            return
        raise Mismatch(
            f"raises {type(error).__name__} instead of {kind.__name__}: {error}"
        ) from error
    raise Mismatch(f"does not raise {kind.__name__} at the call")


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.layout != torch.strided or one.dtype.itemsize == 1 and one.is_floating_point():
        return False
    return one.shape != other.shape or not torch.allclose(
        _plain(one), _plain(other), equal_nan=True
    )


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Real float64 numbers, to compare or to pool."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()


def _contiguous(nest: Any) -> Any:
    """The nest with row-major tensors: to compare values alone."""
    return tree_map_only(torch.Tensor, torch.Tensor.contiguous, nest)
