"""Every check of one entry of ``op_db``."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map_only

import fuse
from fuse.commands.coverage import special
from fuse.commands.coverage.comparing import (
    Mismatch,
    compare_aliases,
    compare_metadata,
    compare_nest,
    compare_values,
    same_distribution,
)
from fuse.commands.coverage.record import Fallbacks, NotApplicable, Outcome, brief, outcome_of
from fuse.commands.coverage.transfer import Transfer, tensors_of

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
SAMPLES = {torch.float32: 4}
OTHER_SAMPLES = 2
VARIANT_SAMPLES = 2
ERRORS = 12
DRAWS = 60
FEW = 8


def name_of(info: Any) -> str:
    """An entry's name with its variant."""
    variant = info.variant_test_name
    return f"{info.name}.{variant}" if variant else str(info.name)


ENTRIES: dict[str, Any] = {name_of(info): info for info in op_db}


def checks(entry: str, quick: bool = False) -> Iterator[tuple[str, Outcome]]:
    """Run every check that applies to ``entry``; yields names and outcomes.

    ``quick`` leaves only the first dtype and the errors: no variants.
    """
    info = ENTRIES[entry]
    check = _Operator(info, f"op:{entry}")
    supported = info.supported_dtypes("cpu")
    wanted = [dtype for dtype in DTYPES if dtype in supported]
    wanted = wanted or sorted(supported, key=str)[:1]
    wanted = wanted[:1] if quick else wanted
    found: dict[str, Outcome | None] = {}
    for dtype in wanted:
        name = str(dtype).removeprefix("torch.")
        if check.differentiable(dtype):
            found |= check.forward_and_gradient(name, dtype)
        else:
            found[f"forward {name}"] = outcome_of(check.samples(dtype), check.forward)
    if not quick:
        found |= _variants(check, wanted[0])
    if info.error_inputs_func is not None and not compiled:  # there Dynamo raises, its own errors
        found["errors"] = outcome_of(check.error_samples(), check.error)
    yield from ((name, outcome) for name, outcome in found.items() if outcome is not None)


def _variants(check: _Operator, main: torch.dtype) -> dict[str, Outcome | None]:
    found: dict[str, Outcome | None] = {}
    found["non-contiguous"] = outcome_of(check.noncontiguous_samples(main), check.forward)
    found["zero-size"] = outcome_of(check.empty_samples(main), check.forward)
    if check.info.supports_out:
        found["out="] = outcome_of(check.samples(main, VARIANT_SAMPLES), check.out)
    if check.info.get_inplace() is not None:
        samples = check.samples(main, VARIANT_SAMPLES)
        found["in-place"] = outcome_of(samples, check.inplace)
    return found


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
    return torch.compile(
        lambda *arguments, **options: plain(*arguments, **options), backend="tpu", dynamic=False
    )


class _Call:
    """A sample's copy on one device, and the operator called on it."""

    def __init__(self, sample: Any, device: str) -> None:
        move = Transfer(device)
        self.compiled = compiled and device == "tpu"
        self.input = move(sample.input)
        self.args, self.kwargs = move((sample.args, sample.kwargs))

    @property
    def inputs(self) -> tuple[Any, ...]:
        return self.input, self.args, self.kwargs

    def __call__(self, function: Callable[..., Any], **more: Any) -> Any:
        torch.manual_seed(0)
        if self.compiled:
            function = _through_dynamo(function)
        return function(self.input, *self.args, **{**self.kwargs, **more})

    def seeded(self, seed: int, function: Callable[..., Any]) -> Any:
        """The call from another random state, also where the entry itself seeds before it."""
        seed_with = torch.manual_seed
        with mock.patch.object(torch, "manual_seed", lambda own: seed_with(own + seed)):
            return self(function)


class _Operator:
    """The checks of one entry; each takes one sample and raises ``Mismatch``."""

    def __init__(self, info: Any, key: str) -> None:
        self.info, self.key = info, key
        self.values = key not in special.UNINITIALISED
        self.loosen = special.TOLERANCE.get(key, 1.0)

    def call(self, sample: Any, device: str) -> _Call:
        return _Call(sample, device)

    # ---- samples ----------------------------------------------------------------------

    def differentiable(self, dtype: torch.dtype) -> bool:
        if dtype not in (torch.float32, torch.complex64) or not self.info.supports_autograd:
            return False
        return dtype in self.info.supported_backward_dtypes("cpu")

    def samples(
        self, dtype: torch.dtype, count: int | None = None, gradient: bool = False
    ) -> Iterator[Any]:
        torch.manual_seed(0)
        found = self.info.sample_inputs("cpu", dtype, requires_grad=gradient)
        wanted = count or SAMPLES.get(dtype, OTHER_SAMPLES)
        yield from filter(is_strided, spread(filter(is_strided, found), wanted))

    def noncontiguous_samples(self, dtype: torch.dtype) -> Iterator[Any]:
        for sample in self.samples(dtype, VARIANT_SAMPLES):
            strided = sample.noncontiguous()
            if self._cpu_takes(strided):  # some of the CPU's kernels want contiguous inputs
                yield strided

    def empty_samples(self, dtype: torch.dtype) -> Iterator[Any]:
        torch.manual_seed(0)
        own = self.info.sample_inputs("cpu", dtype, requires_grad=False)
        empty = (s for s in own if is_strided(s) and any(_is_empty(t) for t in _tensors(s)))
        yield from spread(empty, VARIANT_SAMPLES)
        for sample in self.samples(dtype, VARIANT_SAMPLES):
            cut = sample.transform(_without_rows)
            if any(_is_empty(t) for t in _tensors(cut)) and self._cpu_takes(cut):
                yield cut

    def _cpu_takes(self, sample: Any) -> bool:
        try:
            self.call(sample, "cpu")(self.info)
        except Exception:  # noqa: BLE001  (an error of any kind: no sample of the operator)
            return False
        return True

    def error_samples(self) -> Iterator[Any]:
        torch.manual_seed(0)
        for error in itertools.islice(self.info.error_inputs("cpu"), ERRORS):
            if is_strided(error.sample_input):
                yield error.sample_input

    # ---- checks -----------------------------------------------------------------------

    def forward(self, sample: Any) -> None:
        expected, found = self.call(sample, "cpu"), self.call(sample, "tpu")
        try:
            right = expected(self.info)
        except Exception as error:  # noqa: BLE001  (the device has to refuse it likewise)
            _must_raise(type(error), lambda: found(self.info))
            return
        left = found(self.info)
        self.compare(sample, left, found, right, expected)

    def compare(self, sample: Any, left: Any, found: _Call, right: Any, expected: _Call) -> None:
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

    def forward_and_gradient(self, name: str, dtype: torch.dtype) -> dict[str, Outcome | None]:
        """Both outcomes, from one run of each sample; the first sample also without gradients."""
        gradient = _Both(self)
        forward = outcome_of(self.samples(dtype, gradient=True), gradient)
        if forward is not None and forward.agrees:
            plain = outcome_of(self.samples(dtype, 1), self.forward)
            if plain is not None and (not plain.agrees or forward.status == "native"):
                plain.samples += forward.samples
                forward = plain
        if forward is not None:
            forward.fallbacks = tuple(n for n in forward.fallbacks if n not in gradient.only)
            if forward.status == "host" and not forward.fallbacks:
                forward.status = "native"
        return {f"forward {name}": forward, f"gradient {name}": gradient.outcome(forward)}

    def out(self, sample: Any) -> None:
        right = self.call(sample, "cpu")(self.info)
        tensors = tensors_of(right)
        plain = isinstance(right, torch.Tensor) or (
            isinstance(right, tuple) and len(tensors) == len(right)
        )
        if not plain or not tensors:
            raise NotApplicable
        for make in (_like, _with_gaps, _nothing):
            self.one_out(sample, [make(t) for t in tensors], right)

    def one_out(self, sample: Any, given: list[torch.Tensor], plain: Any) -> None:
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
        if not isinstance(sample.input, torch.Tensor):
            raise NotApplicable
        for arrange in (_own_memory, _inside_larger):
            self.one_inplace(sample, arrange)

    def one_inplace(self, sample: Any, arrange: Callable[[torch.Tensor], torch.Tensor]) -> None:
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
        try:
            self.call(sample, "cpu")(self.info)
        except Exception as error:  # noqa: BLE001  (its type is what is compared)
            of_data = any(text in str(error) for text in special.ERRORS_OF_DATA)
            with fuse.DebugEager() if of_data else contextlib.nullcontext():
                _must_raise(type(error), lambda: self.call(sample, "tpu")(self.info))


class _Both:
    """Forward and gradient of a sample in one recorded program."""

    def __init__(self, operator: _Operator) -> None:
        self.operator = operator
        self.samples = 0
        self.fallbacks: set[str] = set()
        self.forward: set[str] = set()
        self.problem = ""

    @property
    def only(self) -> set[str]:
        """Operators that ran on the host in the backward pass alone."""
        return self.fallbacks - self.forward

    def __call__(self, sample: Any) -> None:
        operator = self.operator
        expected, found = operator.call(sample, "cpu"), operator.call(sample, "tpu")
        right = expected(operator.info)
        counted = Fallbacks()
        left = found(operator.info)
        self.forward |= set(counted.names())
        counted = Fallbacks()
        grads: list[Any] = []
        try:
            if not self.problem:
                grads = self.gradients(sample, left, found, right, expected)
        except Exception as error:  # noqa: BLE001  (whatever backward raises is its outcome)
            self.problem = brief(error)
        self.fallbacks |= set(counted.names())
        operator.compare(sample, left, found, right, expected)
        if not self.problem and not operator.is_random(sample):
            self.compare(sample, grads)

    def gradients(
        self, sample: Any, left: Any, found: _Call, right: Any, expected: _Call
    ) -> list[Any]:
        """Pairs of gradients, the device's first."""
        process = sample.output_process_fn_grad
        heads = [t for t in tensors_of(process(right)) if t.requires_grad]
        mine = [t for t in tensors_of(process(left)) if t.requires_grad]
        if len(heads) != len(mine):
            raise Mismatch(f"{len(mine)} differentiable results instead of {len(heads)}")
        if not heads:
            return []
        seeds = _seeds(heads)
        theirs = torch.autograd.grad(heads, _wanted(expected), seeds, allow_unused=True)
        ours = torch.autograd.grad(
            mine, _wanted(found), [Transfer("tpu")(s) for s in seeds], allow_unused=True
        )
        return list(zip(ours, theirs, strict=True))

    def compare(self, sample: Any, grads: list[Any]) -> None:
        try:
            for index, (one, other) in enumerate(grads):
                where = f"gradient {index}: "
                if (one is None) != (other is None):
                    raise Mismatch(f"{where}{one} instead of {other}")
                if other is not None:
                    compare_metadata(one, other, where, strides=False)
            self.compare_values(sample, grads)
            self.samples += bool(grads)
        except Mismatch as error:
            self.problem = brief(error)

    def compare_values(self, sample: Any, grads: list[Any]) -> None:
        loosen = 4 * self.operator.loosen
        pairs = [(i, one, other) for i, (one, other) in enumerate(grads) if other is not None]
        try:
            for index, one, other in pairs:
                compare_values(one, other, f"gradient {index}: ", loosen)
        except Mismatch:
            wide = widened(sample)
            if wide is None:
                raise
            exact = self.operator.call(wide, "cpu")
            right = exact(self.operator.info)
            heads = [t for t in tensors_of(wide.output_process_fn_grad(right)) if t.requires_grad]
            theirs = torch.autograd.grad(heads, _wanted(exact), _seeds(heads), allow_unused=True)
            for index, one, _ in pairs:
                reference = narrowed(theirs[index], one)
                compare_values(one, reference, f"gradient {index}: ", loosen)

    def outcome(self, forward: Outcome | None) -> Outcome | None:
        """The gradient's outcome; that of the forward pass where this one failed."""
        fallbacks = tuple(sorted(self.fallbacks | self.forward))
        if self.problem:
            return Outcome("failed", self.samples, fallbacks, self.problem)
        if forward is not None and not forward.agrees:
            return Outcome("failed", self.samples, fallbacks, f"forward: {forward.reason}")
        if not self.samples:
            return None
        return Outcome("host" if fallbacks else "native", self.samples, fallbacks)


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


def _contiguous(nest: Any) -> Any:
    """The nest with row-major tensors: to compare values alone."""
    return tree_map_only(torch.Tensor, torch.Tensor.contiguous, nest)


def _seeds(heads: list[torch.Tensor]) -> list[torch.Tensor]:
    """Cotangents: the same numbers whatever the dtype's width."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(t.shape, dtype=_NARROW.get(t.dtype, t.dtype), generator=generator).to(t.dtype)
        for t in heads
    ]


_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def _wanted(call: _Call) -> list[torch.Tensor]:
    return [t for t in tensors_of(call.inputs) if t.requires_grad]


def _tensors(sample: Any) -> list[torch.Tensor]:
    return tensors_of((sample.input, sample.args, sample.kwargs))


def _is_empty(tensor: torch.Tensor) -> bool:
    return tensor.numel() == 0


def _without_rows(value: Any) -> Any:
    """A tensor with nothing left of its first dimension."""
    return value[:0] if isinstance(value, torch.Tensor) and value.dim() else value


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(tensor.detach())


def _with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones((*tensor.shape, 2), dtype=tensor.dtype)[..., 0]


def _nothing(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=tensor.dtype)


def _own_memory(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _inside_larger(tensor: torch.Tensor) -> torch.Tensor:
    larger = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype, device=tensor.device)
    larger[..., 1] = tensor.detach()
    return larger[..., 1]
