"""Calls of sparse tensors, as programs of their operands, for tests beside PyTorch's CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

DEVICE = "tpu"
# PyTorch warns where nobody says whether it is to check, before 2.13 also where a call does.
torch.sparse.check_sparse_tensor_invariants.disable()
Program = Callable[..., Any]


def coordinates(
    sizes: tuple[int, ...],
    elements: int,
    dense: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Tensor:
    """A coordinate tensor of the CPU with ``elements`` at random places, some of them twice."""
    random = torch.Generator().manual_seed(seed)
    rows = [torch.randint(0, max(size, 1), (elements,), generator=random) for size in sizes]
    indices = torch.stack(rows) if rows else torch.zeros(0, elements, dtype=torch.int64)
    values = torch.randint(-4, 5, (elements, *dense), generator=random).to(dtype)
    return torch.sparse_coo_tensor(indices, values, (*sizes, *dense), check_invariants=True)


def moved(value: Any, device: str) -> Any:
    """An operand on ``device``, a leaf that needs a gradient where it did."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().to(device).requires_grad_(value.requires_grad)


def tensors(results: Any) -> Iterator[Tensor]:
    """The tensors of a result, in order."""
    if isinstance(results, Tensor):
        yield results
    else:
        for one in results:
            yield from tensors(one)


def agrees(program: Program, *operands: Any, times: int = 3) -> None:
    """Asserts that layouts, dtypes and values are the CPU's, at each of several calls."""
    expected = list(tensors(program(*(moved(one, "cpu") for one in operands))))
    for _ in range(times):
        found = list(tensors(program(*(moved(one, DEVICE) for one in operands))))
        assert len(found) == len(expected)
        for one, cpu in zip(found, expected, strict=True):
            assert one.device.type == DEVICE
            assert (one.layout, one.dtype, one.shape) == (cpu.layout, cpu.dtype, cpu.shape)
            if cpu.layout == torch.sparse_coo:
                assert (one.sparse_dim(), one.dense_dim()) == (cpu.sparse_dim(), cpu.dense_dim())
                assert one.is_coalesced() == cpu.is_coalesced()
            torch.testing.assert_close(dense(one), dense(cpu), rtol=1e-5, atol=1e-5)


def dense(x: Tensor) -> Tensor:
    """On the CPU, strided."""
    x = x.detach().cpu()
    return x if x.layout == torch.strided else x.to_dense()


S = coordinates((4, 6), 9)
OTHER = coordinates((4, 6), 12, seed=3)
SQUARE = coordinates((5, 5), 8, seed=1)
HYBRID = coordinates((4, 3), 7, dense=(2,), seed=2)
D = torch.arange(24.0).reshape(4, 6) - 7
TALL = torch.arange(18.0).reshape(6, 3) / 5

PROGRAMS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "coalesce": (lambda s: s.coalesce(), (S,)),
    "coalesce, hybrid": (lambda s: s.coalesce(), (HYBRID,)),
    "coalesce, truth values": (lambda s: s.coalesce(), (coordinates((3, 3), 8, (), torch.bool),)),
    "coalesce, one element": (lambda s: s.coalesce(), (coordinates((3, 3), 1),)),
    "coalesce, nothing": (lambda s: s.coalesce(), (coordinates((3, 3), 0),)),
    "coalesce, no dimension": (lambda s: s.coalesce(), (coordinates((), 3),)),
    "indices and values": (lambda s: (s.coalesce().indices(), s.coalesce().values()), (S,)),
    "to_dense": (lambda s: s.to_dense(), (S,)),
    "to_dense, hybrid": (lambda s: s.to_dense(), (HYBRID,)),
    "to_sparse": (lambda d: d.relu().to_sparse(), (D,)),
    "to_sparse, hybrid": (lambda d: d.relu().to_sparse(1), (D,)),
    "to_sparse_csr": (lambda d: d.relu().to_sparse_csr(), (D,)),
    "csr and back": (lambda s: s.coalesce().to_sparse_csr().to_sparse_coo().to_dense(), (S,)),
    "csr, its parts": (lambda s: _parts(s.to_sparse_csr()), (S,)),
    "a batch of csr": (lambda d: torch.stack([d, 2 * d]).to_sparse_csr().to_sparse(), (D,)),
    "csc, bsr": (lambda d: (d.to_sparse_csc(), d.to_sparse_bsr((2, 2))), (D,)),
    "add": (lambda s: s + s, (S,)),
    "add, both coalesced": (lambda s: s.coalesce() + (2 * s).coalesce(), (S,)),
    "add, other dtypes": (lambda s: s.double() + s, (S,)),
    "add to dense": (lambda d, s: torch.add(d, s, alpha=2), (D, S)),
    "add to dense, transposed": (lambda d, s: d.t() + s.t(), (D, S)),
    "add to dense, hybrid": (lambda s: torch.ones(4, 3, 2, device=s.device) + s, (HYBRID,)),
    "add_ to dense": (lambda d, s: d.clone().add_(s, alpha=-0.5), (D, S)),
    "add_ to a view": (lambda d, s: _added_to_rows(d, s), (torch.zeros(8, 6), S)),
    "sub": (lambda s: s - 3 * s, (S,)),
    "sub_": (lambda s: s.clone().sub_(s, alpha=3), (S,)),
    "mul by a number": (lambda s: (s * 2.5, 2 * s, s.mul(torch.tensor(3.0))), (S,)),
    "mul_ by a number": (lambda s: s.clone().mul_(3), (S,)),
    "mul by dense": (lambda s, d: (s * d, d * s), (S, D)),
    "mul by sparse": (lambda s, t: s.coalesce() * t.coalesce(), (S, OTHER)),
    "mul by sparse, hybrid": (lambda s: s.coalesce() * s.coalesce(), (HYBRID,)),
    "mul by sparse, twice an element": (lambda s, t: (s * t).to_dense(), (S, OTHER)),
    "div": (lambda s: (s / 4, torch.div(s, 3, rounding_mode="floor")), (S,)),
    "by value": (lambda s: (s.abs(), s.sin(), s.sgn(), -s, s.relu(), s.isnan()), (S,)),
    "mm": (lambda s, b: (torch.sparse.mm(s, b), s @ b, torch.mm(s, b)), (S, TALL)),
    "mm, transposed": (lambda s, d: s.t() @ d, (S, D)),
    "mm, csr": (lambda s, b: s.to_sparse_csr() @ b, (S, TALL)),
    "mm, nothing": (lambda s, b: s @ b, (coordinates((4, 6), 0), TALL)),
    "mm of two": (lambda s: torch.sparse.mm(s, s.t()), (S,)),
    "mm of two, coalesced": (lambda s: torch.sparse.mm(s.coalesce(), s.t().coalesce()), (S,)),
    "mm of two, nothing": (lambda s, e: torch.sparse.mm(s.t(), e), (S, coordinates((4, 3), 0))),
    "mv": (lambda s, b: s.mv(b[:, 0]), (S, TALL)),
    "addmm": (
        lambda s, b: torch.addmm(torch.ones(4, 3, device=b.device), s, b, beta=0.5, alpha=2),
        (S, TALL),
    ),
    "addmm, beta 0": (
        lambda s, b: torch.addmm(torch.full((4, 3), torch.nan, device=b.device), s, b, beta=0),
        (S, TALL),
    ),
    "sparse.addmm": (lambda s, d: torch.sparse.addmm(d[:, :3], s, d.t()[:, :3]), (S, D)),
    "bmm": (lambda s, b: torch.bmm(torch.stack([s, 2 * s]), torch.stack([b, b + 1])), (S, TALL)),
    "powers": (lambda s: torch.sparse.mm(s, torch.sparse.mm(s, s.to_dense())), (SQUARE,)),
    "sum": (lambda s: (s.sum(), torch.sparse.sum(s, 0), torch.sparse.sum(s, 1)), (S,)),
    "norm": (lambda s: s.norm(), (S,)),
    "any": (lambda s: s.bool().any(), (S,)),
    "softmax": (lambda s: torch.sparse.softmax(s, 1), (S,)),
    "sparse_mask": (lambda d, s: (d.sparse_mask(s.coalesce()), d.sparse_mask(s)), (D, S)),
    "sparse_mask, hybrid": (lambda s: s.to_dense().sparse_mask(s.coalesce()), (HYBRID,)),
    "sparse_mask of sparse": (lambda s, t: s.coalesce().sparse_mask(t.coalesce()), (S, OTHER)),
    "cat, stack": (lambda s: (torch.cat([s, s], 1), torch.stack([s, s])), (S,)),
    "select": (lambda s: (s[1], s.select(1, 2)), (S,)),
    "index_select": (
        lambda s: [s.index_select(dim, _index(s, 2, 0, 2)) for dim in (0, 1, -1)],
        (S,),
    ),
    "index_select, hybrid": (
        lambda s: [s.index_select(dim, _index(s, 1, 0)) for dim in (0, 1, 2)],
        (HYBRID,),
    ),
    "narrow_copy": (lambda s: s.narrow_copy(1, 1, 3), (S,)),
    "unsqueeze, permute": (lambda s: (s.unsqueeze(0), s.permute(1, 0), s.t()), (S,)),
    "zeros_like, clone": (lambda s: (torch.zeros_like(s), s.clone(), s.detach()), (S,)),
    "other dtypes": (lambda s: (s.double(), s.to(torch.bfloat16), s.int()), (S,)),
    "zero_": (lambda s: s.clone().zero_(), (S,)),
    "resize": (lambda s: s.clone().sparse_resize_((5, 7), 2, 0), (S,)),
}


def _index(x: Tensor, *places: int) -> Tensor:
    return torch.tensor(places, device=x.device)


def _parts(x: Tensor) -> tuple[Tensor, ...]:
    return x.crow_indices(), x.col_indices(), x.values()


def _added_to_rows(d: Tensor, s: Tensor) -> Tensor:
    d = d.clone()
    d[::2] += s
    return d


GRADIENTS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "mm": (torch.sparse.mm, (S.coalesce(), TALL)),
    "mm, twice an element": (torch.sparse.mm, (S, TALL)),
    "addmm": (torch.sparse.addmm, (torch.ones(4, 3), S.coalesce(), TALL)),
    "to_dense": (lambda s: s.to_dense(), (S.coalesce(),)),
    "to_sparse": (lambda d: d.to_sparse().to_dense(), (D,)),
    "values": (lambda s: s.coalesce().values(), (S.coalesce(),)),
    "made of parts": (
        lambda v: torch.sparse_coo_tensor(
            torch.tensor([[0, 1, 1], [1, 0, 0]], device=v.device), v, (2, 2), check_invariants=False
        ).to_dense(),
        (torch.tensor([1.0, 2.0, 3.0]),),
    ),
    "add to dense": (torch.add, (D, S.coalesce())),
    "sparse_mask": (lambda d: d.sparse_mask(S.coalesce().to(d.device)).to_dense(), (D,)),
    "mm of two": (
        lambda s, t: torch.sparse.mm(s, t.t()).to_dense(),
        (S.coalesce(), OTHER.coalesce()),
    ),
    "mul by sparse": (lambda s, t: (s * t).to_dense(), (S.coalesce(), OTHER.coalesce())),
    "sum": (lambda s: torch.sparse.sum(s), (S.coalesce(),)),
    "sum by row": (lambda s: torch.sparse.sum(s, 1).to_dense(), (S.coalesce(),)),
    "softmax": (lambda s: torch.sparse.softmax(s, 1).to_dense(), (S.coalesce(),)),
    "mul by dense": (lambda s, d: (s * d).to_dense(), (S.coalesce(), D)),
    "mm, csr": (lambda d, b: d.to_sparse_csr() @ b, (D, TALL)),
}
"""Of each operand that floats, the gradient of the sum of squares."""
