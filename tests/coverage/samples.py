"""What an operator is called with: the database's samples and their variants."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_map_only

from tests.coverage.transfer import Transfer, tensors_of

SAMPLES = {torch.float32: 4}
OTHER_SAMPLES = 2
VARIANT_SAMPLES = 2
ERRORS = 12


def spread(samples: Iterable[Any], count: int) -> list[Any]:
    """``count`` samples at even distances, the first among them."""
    found = list(itertools.islice(samples, 400))
    if len(found) <= count:
        return found
    return [found[index * len(found) // count] for index in range(count)]


def is_strided(sample: Any) -> bool:
    """Whether every tensor of a sample is strided and on the CPU."""
    nest = (sample.input, sample.args, sample.kwargs)
    return all(t.layout == torch.strided and t.device.type == "cpu" for t in tensors_of(nest))


compiled = False
"""Whether the device's calls go through torch.compile."""


def _through_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(function, "op", function)  # an entry's own call is nothing to compile
    torch._dynamo.reset()
    through: Callable[..., Any] = torch.compile(
        lambda *arguments, **options: plain(*arguments, **options), backend="tpu", dynamic=False
    )
    return through


class Call:
    """A sample's copy on one device, and the operator called on it."""

    def __init__(self, sample: Any, device: str) -> None:
        move = Transfer(device)
        self.compiled = compiled and device == "tpu"
        self.input = move(sample.input)
        self.args, self.kwargs = move((sample.args, sample.kwargs))

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What the call may read and write."""
        return self.input, self.args, self.kwargs

    def __call__(self, function: Callable[..., Any], **more: Any) -> Any:
        """The result of ``function``, from the random state of seed 0."""
        torch.manual_seed(0)
        if self.compiled:
            function = _through_dynamo(function)
        return function(self.input, *self.args, **{**self.kwargs, **more})

    def seeded(self, seed: int, function: Callable[..., Any]) -> Any:
        """The call from another random state, also where the entry itself seeds before it."""
        seed_with = torch.manual_seed
        with mock.patch.object(torch, "manual_seed", lambda own: seed_with(own + seed)):
            return self(function)


class Samples:
    """The samples of one entry of ``op_db``, all strided and on the CPU."""

    def __init__(self, info: Any) -> None:
        self.info = info

    def differentiable(self, dtype: torch.dtype) -> bool:
        """Whether gradients are to be checked in ``dtype``."""
        if dtype not in (torch.float32, torch.complex64) or not self.info.supports_autograd:
            return False
        return dtype in self.info.supported_backward_dtypes("cpu")

    def plain(
        self, dtype: torch.dtype, count: int | None = None, gradient: bool = False
    ) -> Iterator[Any]:
        """Samples of ``dtype``, ``count`` of them at even distances."""
        torch.manual_seed(0)
        found = self.info.sample_inputs("cpu", dtype, requires_grad=gradient)
        wanted = count or SAMPLES.get(dtype, OTHER_SAMPLES)
        yield from filter(is_strided, spread(filter(is_strided, found), wanted))

    def noncontiguous(self, dtype: torch.dtype) -> Iterator[Any]:
        """Samples whose tensors have gaps, where the CPU takes them."""
        for sample in self.plain(dtype, VARIANT_SAMPLES):
            strided = sample.noncontiguous()
            if self._cpu_takes(strided):  # some of the CPU's kernels want contiguous inputs
                yield strided

    def empty(self, dtype: torch.dtype) -> Iterator[Any]:
        """Samples without elements: the own ones, and others without their rows."""
        torch.manual_seed(0)
        own = self.info.sample_inputs("cpu", dtype, requires_grad=False)
        empty = (s for s in own if is_strided(s) and any(_is_empty(t) for t in _tensors(s)))
        yield from spread(empty, VARIANT_SAMPLES)
        for sample in self.plain(dtype, VARIANT_SAMPLES):
            cut = sample.transform(_without_rows)
            if any(_is_empty(t) for t in _tensors(cut)) and self._cpu_takes(cut):
                yield cut

    def _cpu_takes(self, sample: Any) -> bool:
        try:
            Call(sample, "cpu")(self.info)
        except Exception:  # noqa: BLE001  (an error of any kind: no sample of the operator)
            return False
        return True

    def errors(self) -> Iterator[Any]:
        """Samples that the operator must refuse."""
        torch.manual_seed(0)
        for error in itertools.islice(self.info.error_inputs("cpu"), ERRORS):
            if is_strided(error.sample_input):
                yield error.sample_input


WIDER = {
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


def widened(sample: Any) -> Any:
    """The sample in the next wider dtype, to tell whose rounding a difference is; or ``None``."""
    narrow = {t.dtype for t in _tensors(sample)} & set(WIDER)
    if not narrow:
        return None

    def widen(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return WIDER.get(value, value) if value in narrow else value
        if value.dtype not in narrow:
            return value
        return value.to(WIDER[value.dtype]).requires_grad_(value.requires_grad)

    return sample.transform(widen)


def narrowed(exact: Any, like: Any) -> Any:
    """The nest ``exact`` in the dtypes of ``like``."""
    wanted = iter(tensors_of(like))

    def narrow(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(next(wanted).dtype)

    return tree_map_only(torch.Tensor, narrow, exact)


def _tensors(sample: Any) -> list[torch.Tensor]:
    return tensors_of((sample.input, sample.args, sample.kwargs))


def _is_empty(tensor: torch.Tensor) -> bool:
    return tensor.numel() == 0


def _without_rows(value: Any) -> Any:
    """A tensor with nothing left of its first dimension."""
    return value[:0] if isinstance(value, torch.Tensor) and value.dim() else value


def like(tensor: torch.Tensor) -> torch.Tensor:
    """An ``out=`` of the same size."""
    return torch.ones_like(tensor.detach())


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """An ``out=`` that is every other element of a larger tensor."""
    return torch.ones((*tensor.shape, 2), dtype=tensor.dtype)[..., 0]


def nothing(tensor: torch.Tensor) -> torch.Tensor:
    """An ``out=`` that has to grow."""
    return torch.empty(0, dtype=tensor.dtype)


def own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A copy."""
    return tensor.detach().clone()


def inside_larger(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that is every other element of a larger tensor."""
    larger = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype, device=tensor.device)
    larger[..., 1] = tensor.detach()
    return larger[..., 1]
