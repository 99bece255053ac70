"""Rules that read and write at computed indices agree with PyTorch's CPU kernels."""

from __future__ import annotations

import jax
import pytest
import torch

from fuse.backends.xla.rules.registry import RuleContext, Unsupported
from fuse.trace.spec import TensorSpec
from tests.backends.rule_harness import RULES, check, run, to_array, unreached


def data(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    values = torch.randint(-4, 5, shape, generator=generator)
    return values.to(dtype) * 1j if dtype.is_complex else values.to(dtype)


def places(limit: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(limit + sum(shape))
    return torch.randint(0, limit, shape, generator=generator)


def distinct(limit: int, *shape: int) -> torch.Tensor:
    """Indices along dim 0 without doubles, whose winner PyTorch does not define."""
    return torch.rand(limit, *shape[1:]).argsort(0)[: shape[0]].contiguous()


x, cube, scalar = data(4, 6), data(3, 4, 5), data()
i4, i2 = torch.tensor([3, -1, 0, 0]), torch.tensor([[2], [-3]])
mask = torch.tensor([[True, False, True, False, False, True]] * 2 + [[False] * 6, [True] * 6])
nothing = torch.empty(0, dtype=torch.int64)
INDEX = [
    ("index.Tensor", x, [i4]), ("index.Tensor", x, [None, i4]), ("index.Tensor", x, [i2, i4]),
    ("index.Tensor", cube, [i2, None, i4]), ("index.Tensor", cube, [None, i2, i4]),
    ("index.Tensor", cube, [torch.tensor(-1)]),
    ("index.Tensor", cube, [torch.tensor(1), None, i4]), ("index.Tensor", x, [nothing]),
    ("index.Tensor", x, [i4.int()]), ("index.Tensor", x[:, :0], [i4]),
    ("_unsafe_index.Tensor", cube, [None, None, i4]),
    ("index.Tensor", data(4, 6, dtype=torch.bool), [i4, i4]),
    ("index.Tensor", data(4, 6, dtype=torch.complex64), [i4]),
    ("index_put", x, [torch.tensor([1, -1])], data(2, 6)),
    ("index_put", x, [None, i4[:2]], scalar), ("index_put", x, [i4, i4], data(4), True),
    ("index_put", cube, [i2, None, i4], data(2, 4, 4), True),
    ("index_put", cube, [i2, None, i4], data(4), True), ("index_put", x, [nothing], scalar),
    ("index_put", data(4, 6, dtype=torch.bfloat16), [i4], data(4, 6, dtype=torch.bfloat16), True),
    ("index_put", x, [mask], scalar), ("index_put", x, [mask], data(12)),
    ("index_put", x, [mask], data(1)), ("index_put", x, [mask], data(12), True),
    ("index_put", x, [mask[:, 0]], data(3, 6)), ("index_put", x, [mask[:, 0]], data(6)),
    ("index_put", x, [mask[:, 0]], data(3, 1)), ("index_put", x, [None, mask[0]], data(4, 3)),
    ("index_put", x, [None, mask[0]], data(3)), ("index_put", x, [mask & False], data(0)),
    ("index_put", cube, [torch.ones(3, 4).bool()], data(12, 5)),
    ("index_put", data(4, 6, dtype=torch.bool), [mask], torch.tensor(True)),
    ("_unsafe_index_put", x, [i4], data(4, 6), True), ("_index_put_impl", x, [i4], data(6), True),
    ("_unsafe_masked_index", x, mask[:, :4], [i2[:1].expand(4, 4) + 9, i4], 7.0),
    ("_unsafe_masked_index_put_accumulate", x, mask[:, :4], [i4[:, None], i4], data(4, 4)),
    ("index_select", x, 1, i4.abs()), ("index_select", x, -2, torch.tensor(2)),
    ("index_select", scalar, 0, torch.tensor(0)), ("index_select", x, 0, nothing),
    ("index_select_backward", data(4, 4), [4, 6], 1, i4.abs()),
    ("index_add", x, 0, i4.abs(), data(4, 6)), ("index_add", cube, -1, i4.abs(), data(3, 4, 4)),
    ("index_add", scalar, 0, torch.tensor([0]), scalar + 1),
    ("index_add", x, 0, torch.tensor(1), data(1, 6)),
    ("index_add", x.to(torch.bfloat16), 1, i4.abs(), data(4, 4, dtype=torch.bfloat16)),
    ("index_copy", x, 1, torch.tensor([5, 0]), data(4, 2)),
    ("index_copy", scalar, 0, torch.tensor(0), scalar + 2),
    ("index_copy", x, 0, torch.tensor(1), data(1, 6)), ("index_fill.int_Scalar", x, 1, i4, 9),
    ("index_fill.int_Tensor", x, -2, i4, torch.tensor(2.5)),
    ("index_fill.int_Scalar", scalar, 0, torch.tensor(0), 3),
    ("index_fill.int_Scalar", x, 0, nothing, 3), ("take", x, torch.tensor([[0, -1], [23, 7]])),
    ("take", scalar, torch.tensor([0, 0])),
    ("put", x, torch.tensor([[0, -1], [20, 7]]), data(2, 2)),
    ("put", x, torch.tensor([3, 3, -21]), data(3), True),
]  # fmt: skip

wide = places(4, 3, 5)
SCATTER = [
    ("gather", x, 0, wide), ("gather", x, 1, places(6, 4, 1)), ("gather", x, -1, places(6, 2, 9)),
    ("gather", cube, 1, places(4, 2, 6, 3)), ("gather", scalar, 0, torch.tensor(0)),
    ("gather", data(5), 0, torch.tensor(3)), ("gather", x, 0, nothing.view(0, 6)),
    ("gather", cube, 1, places(4, 1, 9, 1)), ("gather_backward", data(3, 5), x, 0, wide, False),
    ("gather_backward", data(4, 1), x, 1, places(6, 4, 1), False),
    ("scatter.src", x, 0, distinct(4, 3, 5), data(3, 6)),
    ("scatter.src", x, 1, places(6, 4, 1), data(4, 2)),
    ("scatter.src", scalar, 0, torch.tensor(0), scalar + 1),
    ("scatter.src", x, 0, nothing.view(0, 6), x),
    ("scatter.src", data(5), 0, torch.tensor(2), torch.tensor(9.0)),
    ("scatter.value", x, 0, wide, 1.5), ("scatter.value", x, 1, places(6, 4, 1), 1),
    ("scatter.value", data(4, 6, dtype=torch.int64), 1, places(6, 4, 2), 3),
    ("scatter.reduce", x, 0, wide, data(4, 6)), ("scatter.value_reduce", x, 0, wide, 2),
    ("scatter_add", x, 0, wide, data(3, 6)), ("scatter_add", x, 1, places(6, 4, 1), data(4, 1)),
    ("scatter_add", x, 1, places(6, 3, 1), data(4, 1)),
    ("scatter_add", scalar, 0, torch.tensor(0), scalar + 1),
    ("scatter_add", data(4, 6, dtype=torch.bool), 0, wide, data(3, 5, dtype=torch.bool)),
    ("scatter_add", data(4, 6, dtype=torch.bfloat16), 0, wide, data(3, 5, dtype=torch.bfloat16)),
    ("scatter_add", data(4, 6, dtype=torch.complex64), 0, wide, data(3, 5, dtype=torch.complex64)),
    ("masked_scatter", x, mask, data(20)), ("masked_scatter", x, mask[:1], data(12)),
    ("masked_scatter", x, mask & False, data(0)), ("masked_scatter_backward", x, mask, [2, 6]),
    ("masked_scatter_backward", x, mask, [15]),
]  # fmt: skip

table, words = data(7, 3), torch.tensor([[1, 0, 6], [1, 1, 3]])
bags, starts = torch.tensor([0, 2, 2, 5, 1, 2]), torch.tensor([0, 2, 2, 3])
weights = torch.tensor([0.5, 2.0, -1.0, 3.0, 1.0, 0.0])


def embedding_bags() -> list[tuple]:
    cases = []
    for mode in (0, 1, 2):
        for padding in (-1, 2):
            for name in ("_embedding_bag", "_embedding_bag_forward_only"):
                cases.append((name, table, bags, starts, False, mode, False, None, False, padding))
            forward = torch.ops.aten._embedding_bag(
                table, bags, starts, False, mode, False, None, False, padding
            )
            grad, rest = data(4, 3), (bags, starts, *forward[1:], 7, False, mode)
            if forward[1].numel():
                dense = (grad, bags, *rest[2:], None, padding)
                cases.append(("_embedding_bag_dense_backward", *dense))
    cases.append(("_embedding_bag", table, bags, starts, False, 0, False, weights, False, 2))
    ends = torch.tensor([0, 2, 2, 6])
    cases.append(("_embedding_bag", table, bags, ends, False, 0, False, weights, True))
    cases.append(("_embedding_bag", table, bags, ends, False, 2, False, None, True))
    of = torch.tensor([0, 0, 2, 3, 3, 3])
    sizes = torch.tensor([2, 0, 1, 3])
    cases.append(
        ("_embedding_bag_dense_backward", data(4, 3), bags, of, sizes, sizes, 7, False, 0, weights)
    )
    for list_of_bags in (of, of[:0]):
        cases.append(
            (
                "_embedding_bag_per_sample_weights_backward",
                data(4, 3),
                table,
                bags,
                starts,
                list_of_bags,
                0,
                5,
            )
        )
    return cases


EMBEDDING = [
    ("embedding", table, words), ("embedding", table.to(torch.bfloat16), words.int(), 0),
    ("embedding", table, nothing), ("embedding", table, torch.tensor(3)),
    ("embedding_dense_backward", data(2, 3, 4), words, 7, -1, False),
    ("embedding_dense_backward", data(2, 3, 4), words, 7, 1, False),
    ("embedding_dense_backward", data(2, 3, 4), words, 7, 0, True),
    ("embedding_dense_backward", data(2, 3, 4, dtype=torch.bfloat16), words, 7, -1, False),
    ("embedding_dense_backward", data(0, 4), nothing, 7, -1, False),
    ("embedding_backward", data(2, 3, 4), words, 7, 6, False, False),
    ("embedding_renorm", table, words, 2.0, 2.0), ("embedding_renorm", table, words, 2.0, 1.0),
    ("embedding_renorm", table, words, 2.0, float("inf")),
    ("embedding_renorm", table, words, 1.5, 3.0), *embedding_bags(),
]  # fmt: skip

CASES = INDEX + SCATTER + EMBEDDING


def name(case: tuple) -> str:
    def show(value: object) -> str:
        if isinstance(value, torch.Tensor):
            return "x".join(map(str, value.shape)) or "()"
        return f"[{' '.join(map(show, value))}]" if isinstance(value, list) else str(value)

    return f"{case[0]}({','.join(map(show, case[1:]))})"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_agrees_with_the_cpu_kernel(case):
    if case[0] == "scatter.reduce":
        check(*case, reduce="add")
        check(*case, reduce="multiply")
    elif case[0] == "scatter.value_reduce":
        check(*case, reduce="multiply")
    else:
        check(*case)


def test_index_add_scales_its_source():
    check("index_add", x, 0, i4.abs(), data(4, 6), alpha=2.5)
    check("index_add", x.long(), 1, places(6, 4), data(4, 4, dtype=torch.int64), alpha=-3)


def test_index_add_of_truth_values_is_their_disjunction():
    truth = x > 0
    for alpha in (True, False):
        check("index_add", truth, 0, torch.tensor([1, 1, 2]), ~truth[:3], alpha=alpha)


REDUCTIONS = ["sum", "prod", "mean", "amax", "amin"]
REDUCED = [torch.float32, torch.bfloat16, torch.int64, torch.bool]


PAIRS = [(reduce, dtype) for reduce in REDUCTIONS for dtype in REDUCED]
PAIRS.remove(("mean", torch.bool))  # PyTorch has none


@pytest.mark.parametrize(("reduce", "dtype"), PAIRS, ids=str)
@pytest.mark.parametrize("include", [True, False])
def test_scatter_reduce(include, reduce, dtype):
    value, src = data(4, 6, dtype=dtype), data(3, 6, dtype=dtype)
    check("scatter_reduce.two", value, 0, wide, src, reduce, include_self=include)
    if dtype == torch.float32:
        check(
            "scatter_reduce.two",
            value,
            1,
            places(6, 4, 1),
            data(4, 1),
            reduce,
            include_self=include,
        )
        check(
            "scatter_reduce.two",
            scalar,
            0,
            torch.tensor(0),
            scalar + 3,
            reduce,
            include_self=include,
        )


@pytest.mark.parametrize("dtype", REDUCED[:3], ids=str)
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("reduce", REDUCTIONS[1:])
def test_index_reduce(reduce, include, dtype):
    value, src = data(4, 6, dtype=dtype), data(4, 4, dtype=dtype)
    check("index_reduce", value, 1, i4.abs(), src, reduce, include_self=include)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_scatter_reduce_keeps_nan(reduce):
    src = torch.tensor([1.0, float("nan"), -2.0, 5.0])
    index = torch.tensor([0, 0, 1, 1])
    check("scatter_reduce.two", torch.zeros(3), 0, index, src, reduce)
    check("scatter_reduce.two", torch.zeros(3), 0, index, src, reduce, include_self=False)


def test_an_infinite_gradient_stays_in_its_row():
    grad = torch.ones(4, 2)
    grad[1] = float("inf")
    check("embedding_dense_backward", grad, torch.tensor([0, 1, 2, 0]), 4, -1, False)
    check("scatter_add", torch.zeros(4, 5), 1, torch.tensor([[1], [2], [0], [4]]), grad[:, :1])


def test_bag_sizes_have_the_length_that_was_inferred():
    """PyTorch's meta kernel counts the last offset as a bag, its CPU kernel does not."""
    ends, sizes = torch.tensor([0, 2, 2, 6]), torch.tensor([2, 0, 4, 0])
    call = (False, 1, False, None, True, -1)
    meta = torch.ops.aten._embedding_bag(*(v.to("meta") for v in (table, bags, ends)), *call)
    spec = tuple(TensorSpec(str(v.dtype).removeprefix("torch."), tuple(v.shape)) for v in meta)
    assert spec[2].shape == (4,)
    with jax.enable_x64(True):
        context = RuleContext(out=spec, result_type="float32")
        operands = (to_array(value) for value in (table, bags, ends))
        results = RULES["_embedding_bag"](context, *operands, *call)
    assert [result.shape for result in results] == [out.shape for out in spec]
    assert results[2].tolist() == [2, 0, 4, 0]
    of = torch.tensor([0, 0, 2, 2, 2, 2])
    check("_embedding_bag_dense_backward", data(3, 3), bags, of, sizes, sizes, 7, False, 1, None)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (("index.Tensor", x, [mask]), "depends on the data"),
        (
            ("index_put", cube, [torch.ones(3).bool(), torch.tensor([0, 1, 2])], scalar),
            "a mask among",
        ),
        (
            ("_embedding_bag_dense_backward", data(1, 3), bags, bags * 0, bags[:1], bags[:1])
            + (7, True, 0, None),
            "scale_grad_by_freq",
        ),
    ],
    ids=["mask", "mask and index", "scaled bag"],
)
def test_refuses_what_has_no_static_shape(case, reason):
    with pytest.raises(Unsupported, match=reason):
        run(*case)


def test_every_rule_is_reached() -> None:
    assert unreached("indexing", "scatter", "embedding") == set()
