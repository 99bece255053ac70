"""NumPy's rules that read and write at computed indices: XLA's cases, and a few more."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuse.backends.numpy.rules.registry import REFUSALS, RULES, RuleContext
from fuse.trace.spec import TensorSpec
from tests.backends import test_rules_indexing
from tests.backends.numpy_harness import adopt, check, to_array, unreached

adopt(
    test_rules_indexing,
    globals(),
    leave_out=(
        "test_refuses_what_has_no_static_shape",  # NumPy covers a mask among several indices
        "test_bag_sizes_have_the_length_that_was_inferred",  # calls rules on JAX arrays
    ),
)


x, cube, scalar = test_rules_indexing.x, test_rules_indexing.cube, test_rules_indexing.scalar
bags, mask = test_rules_indexing.bags, test_rules_indexing.mask


def test_the_sizes_of_bags_have_the_length_that_was_inferred() -> None:
    """PyTorch's meta kernel counts the last offset as a bag, its CPU kernel does not."""
    table, ends = test_rules_indexing.table, torch.tensor([0, 2, 2, 6])
    for mode, sizes in ((1, [2, 0, 4, 0]), (1, [2, 0, 4]), (2, [2, 0, 4, 0])):
        call = (False, mode, False, None, True, -1)
        made = torch.ops.aten._embedding_bag(table, bags, ends, *call)
        shapes = [tuple(one.shape) for one in made]
        shapes[2] = (len(sizes),)
        names = [str(one.dtype).removeprefix("torch.") for one in made]
        context = RuleContext(tuple(map(TensorSpec, names, shapes)), "float32")
        found = RULES["_embedding_bag"](context, *map(to_array, (table, bags, ends)), *call)
        assert found[2].tolist() == sizes
        assert [one.shape for one in found] == shapes


def test_mask_among_several_indices() -> None:
    check("index_put", cube, [torch.ones(3).bool(), torch.tensor([0, 1, 2])], scalar)
    check("index_put", x, [mask[:, 0], torch.tensor([5])], torch.ones(3), True)


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_bytes_are_masks() -> None:
    check("index_put", x, [mask.byte()], test_rules_indexing.data(12))


def test_sums_of_booleans_are_disjunctions() -> None:
    truth = x > 0
    check("index_add", truth, 0, torch.tensor([1, 1, 2]), ~truth[:3], alpha=True)
    check("index_put", truth, [torch.tensor([1, 1])], torch.tensor(True), True)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (("index.Tensor", x, [to_array(mask)]), "depends on the data"),
        (("gather_backward", x, x, 0, torch.zeros(4, 6).long(), True), "a sparse gradient"),
        (("embedding_backward", x, bags[:4], 7, -1, False, True), "a sparse gradient"),
        (
            ("_embedding_bag_dense_backward", x[:1], bags, bags * 0, bags[:1], bags[:1])
            + (7, True, 0, None),
            "scale_grad_by_freq",
        ),
    ],
    ids=["mask", "gather", "embedding", "scaled bag"],
)
def test_refuses(case: tuple[Any, ...], reason: str) -> None:
    name, *arguments = case
    found = REFUSALS[name](None, *arguments)
    assert found is not None and reason in found


def test_every_rule_is_called() -> None:
    assert unreached("indexing", "scatter", "embedding") == set()
