"""The table of operators: one record for each that is out of the ordinary.

What PyTorch's schemas do not say of an operator, and recording, planning or running it has to
know, stands here and nowhere else; the native core is told of it when the device starts. How an
operator is computed does not: rules are the backends', and ``fuse.device.composites`` has what is
composed of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, final

from fuse.trace.functional import base_name
from fuse.versions import CLAMP_DROPS_BOUNDS

Draws = Literal["elements", "dropout", "samples", "permutation"]
"""How an operator uses the device's generator: each element from one word, or pair of words, alone
(a dropout's as well), or the whole result from all of them (of weights, and a permutation)."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What is special of an operator. One without a record has the defaults.

    Attributes:
        writes: positions of arguments that it writes though its schema does not say so. The rule
            returns their new values after the schema's results, ``None`` for one that is ``None``.
        draws: how it draws random numbers, if it does.
        indexes: it takes tensors of indices, which may be on the host.
        numbers: integer arguments that are neither a size, a dimension nor a choice: they may vary
            from one run of a program to the next, as a step size does.
        converted: arguments whose numbers its CPU kernel converts to the result's dtype.
        widened: the same, but for half precision: there they convert to float32.
        unwrapped: its integers must be values of the dtype: PyTorch's own kernel drops others.
        one_dtype: its operands must share a dtype.
        product: a product of matrices.
        apart: it refuses to write what it reads, where pointwise ones may; "but first" where it
            updates its first operand, which in place is what it writes.
        converts_out: its kernel converts to the dtype of ``out=``; None where that follows from
            its tags: pointwise ones do.
        truths: its results are not of its operands' dtype, but for bytes.
        probed: its CPU kernel is asked about calls of it, on a few ones and zeros. Not where these
            are no pivots of a factorisation, nor where accelerators compute what the CPU refuses:
            they count integers, as transformers' experts do; nor where offsets must end at a size.
        helpers_differ: its CPU kernel returns helper results of other shapes than were recorded:
            a chunk with it runs compiled only.
        unread: tensor arguments of which it needs the sizes and the dtype alone.
        undefined_rows: its CPU kernel leaves rows undefined that are zeros on the device: it never
            runs uncompiled.
    """

    writes: tuple[int, ...] = ()
    draws: Draws | None = None
    indexes: bool = False
    numbers: tuple[str, ...] = ()
    converted: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    unwrapped: bool = False
    one_dtype: bool = False
    product: bool = False
    apart: Literal["all", "but first"] | None = None
    converts_out: bool | None = None
    truths: bool = False
    probed: bool = True
    helpers_differ: bool = False
    undefined_rows: bool = False
    unread: tuple[str, ...] = ()


Record = tuple[str, tuple[int, ...], str, tuple[str, ...], tuple[str, ...]]
PLAIN: Final = Operator()


def _product(widened: tuple[str, ...] = (), converted: tuple[str, ...] = ()) -> Operator:
    return Operator(one_dtype=True, product=True, widened=widened, converted=converted)


def _drawn(numbers: tuple[str, ...] = ()) -> Operator:
    return Operator(draws="elements", numbers=numbers)


OPERATORS: Final[dict[str, Operator]] = {
    "_amp_update_scale": Operator(numbers=("growth_interval",)),
    # Its kernel follows the tables of the forward pass, and ones and zeros lead it out of them.
    "_ctc_loss_backward": Operator(probed=False),
    "_embedding_bag": Operator(helpers_differ=True),
    "_embedding_bag_forward_only": Operator(helpers_differ=True),
    "_grouped_mm": Operator(undefined_rows=True),
    "_index_put_impl": Operator(indexes=True, apart="but first"),
    "_unsafe_index": Operator(indexes=True),
    "_unsafe_index_put": Operator(indexes=True),
    "_unsafe_masked_index": Operator(indexes=True),
    "_unsafe_masked_index_put_accumulate": Operator(indexes=True),
    "_padded_dense_to_jagged_forward": Operator(probed=False),
    "_standard_gamma": _drawn(),
    "add": Operator(converted=("alpha",)),
    "addbmm": _product(widened=("beta", "alpha")),
    "addcdiv": Operator(widened=("value",)),
    "addcmul": Operator(widened=("value",)),
    "addmm": _product(widened=("beta", "alpha")),
    "addmv": _product(converted=("beta", "alpha")),
    "addr": Operator(converted=("beta", "alpha")),
    "all": Operator(truths=True),
    "any": Operator(truths=True),
    "avg_pool2d": Operator(numbers=("divisor_override",)),
    "avg_pool2d_backward": Operator(numbers=("divisor_override",)),
    "avg_pool3d": Operator(numbers=("divisor_override",)),
    "avg_pool3d_backward": Operator(numbers=("divisor_override",)),
    "baddbmm": _product(widened=("beta", "alpha")),
    "bernoulli": _drawn(),
    "binomial": _drawn(),
    "bmm": _product(),
    "cat": Operator(apart="all", converts_out=True),
    "cauchy": _drawn(),
    "clamp": Operator(converted=("min", "max"), unwrapped=CLAMP_DROPS_BOUNDS),
    "clamp_max": Operator(converted=("max",), unwrapped=CLAMP_DROPS_BOUNDS),
    "clamp_min": Operator(converted=("min",), unwrapped=CLAMP_DROPS_BOUNDS),
    "complex": Operator(one_dtype=True, converts_out=False),
    "conj_physical": Operator(converts_out=False),
    "constant_pad_nd": Operator(converted=("value",)),
    "cumprod": Operator(converts_out=True),
    "cumsum": Operator(converts_out=True),
    "dot": _product(),
    "exponential": _drawn(),
    "fill": Operator(converted=("value",)),
    "frexp": Operator(converts_out=False),
    "gather": Operator(apart="all"),
    "geometric": _drawn(),
    "hardtanh": Operator(converted=("min_val", "max_val"), unwrapped=CLAMP_DROPS_BOUNDS),
    "heaviside": Operator(converts_out=False),
    "histc": Operator(probed=False),
    "index": Operator(indexes=True),
    "index_add": Operator(indexes=True, apart="but first", converted=("alpha",)),
    "index_copy": Operator(indexes=True, apart="but first"),
    "index_fill": Operator(indexes=True, apart="but first", converted=("value",)),
    "index_put": Operator(indexes=True, apart="but first"),
    "index_reduce": Operator(indexes=True, apart="but first"),
    "index_select": Operator(indexes=True, apart="all"),
    "index_select_backward": Operator(indexes=True),
    "isin": Operator(converts_out=False),
    "kthvalue": Operator(apart="all", numbers=("k",)),
    "linalg_cross": Operator(apart="all"),
    "linalg_ldl_solve": Operator(probed=False),
    "linalg_lu_solve": Operator(probed=False),
    "linalg_vector_norm": Operator(converts_out=True),
    "linear": Operator(one_dtype=True),
    "log_normal": _drawn(),
    "lu_solve": Operator(probed=False),
    "lu_unpack": Operator(probed=False),
    "masked_fill": Operator(converted=("value",)),
    "masked_scatter": Operator(apart="all"),
    "mean": Operator(converts_out=True),
    "mm": _product(),
    "mode": Operator(apart="all"),
    "multinomial": Operator(draws="samples", apart="all"),
    "mv": _product(),
    "nan_to_num": Operator(converts_out=False),
    "native_batch_norm": Operator(writes=(3, 4)),
    "native_dropout": Operator(draws="dropout"),
    "neg": Operator(converts_out=False),
    "nll_loss2d_backward": Operator(numbers=("ignore_index",), unread=("self",)),
    "nll_loss2d_forward": Operator(numbers=("ignore_index",)),
    "nll_loss_backward": Operator(numbers=("ignore_index",), unread=("self",)),
    "nll_loss_forward": Operator(numbers=("ignore_index",)),
    "normal": _drawn(),
    "normal_functional": _drawn(),
    "poisson": _drawn(),
    "polar": Operator(one_dtype=True, converts_out=False),
    "prod": Operator(converts_out=True),
    "put": Operator(apart="but first"),
    "rand": _drawn(),
    "rand_like": _drawn(),
    "randint": _drawn(numbers=("low", "high")),
    "randint_like": _drawn(numbers=("low", "high")),
    "randn": _drawn(),
    "randn_like": _drawn(),
    "random": _drawn(numbers=("from", "to")),
    "randperm": Operator(draws="permutation"),
    "roll": Operator(numbers=("shifts",)),
    "round": Operator(numbers=("decimals",), converts_out=False),
    "rrelu_with_noise": _drawn(),
    "rrelu_with_noise_functional": _drawn(),
    "scatter": Operator(apart="but first", converted=("value",)),
    "scatter_add": Operator(apart="but first"),
    "scatter_reduce": Operator(apart="but first"),
    "select_backward": Operator(numbers=("index",)),
    "select_scatter": Operator(numbers=("index",)),
    "slice_backward": Operator(numbers=("start", "end")),
    "softplus": Operator(widened=("beta", "threshold")),
    "stack": Operator(converts_out=True),
    "sub": Operator(converted=("alpha",)),
    "take": Operator(apart="all"),
    "threshold": Operator(converted=("value",), widened=("threshold",)),
    "tril": Operator(numbers=("diagonal",)),
    "triu": Operator(numbers=("diagonal",)),
    "uniform": _drawn(),
    "vdot": Operator(one_dtype=True),
}
"""By name without overload and in-place underscore."""


def operator(name: str) -> Operator:
    """The record of an ATen operator, with or without overload."""
    return OPERATORS.get(base_name(name), PLAIN)


def with_a(field: str) -> frozenset[str]:
    """The operators whose record says something of ``field``, by name without overload."""
    default = getattr(PLAIN, field)
    return frozenset(name for name, one in OPERATORS.items() if getattr(one, field) != default)


FLAGS: Final = ("indexes", "undefined_rows")
"""The fields of the core's that are true or false."""


def for_the_core() -> Iterator[Record]:
    """What the native core has to know: name, writes, draws, numbers, and which flags are true."""
    for name, one in OPERATORS.items():
        flags = tuple(flag for flag in FLAGS if getattr(one, flag))
        if one.writes or one.draws or one.numbers or flags:
            yield name, one.writes, one.draws or "", one.numbers, flags
