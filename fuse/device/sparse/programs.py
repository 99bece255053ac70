"""Operators of coordinate tensors as programs of their indices and values, on the device.

One returns None of what it does not take, which runs on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

Program = Callable[..., Tensor | None]
PROGRAMS: Final[dict[str, Program]] = {}
"""By overload, those of coordinate tensors."""
OF_COMPRESSED: Final[set[str]] = set()
"""Those that take the compressed layouts as well."""


def program(name: str, compressed: bool = False) -> Callable[[Program], Program]:
    """Register a function as the kernel of an overload."""

    def register(function: Program) -> Program:
        PROGRAMS[name] = function
        if compressed:
            OF_COMPRESSED.add(name)
        return function

    return register


def is_coordinates(x: object) -> bool:
    """Whether ``x`` is a tensor of the layout ``torch.sparse_coo``."""
    return isinstance(x, Tensor) and x.layout == torch.sparse_coo


def is_dense(x: object) -> bool:
    """Whether ``x`` is a strided tensor."""
    return isinstance(x, Tensor) and x.layout == torch.strided


def places(indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """The place of each element in row-major order: ``indices`` (d, n) in ``sizes`` (d,), int64."""
    flat = indices.new_zeros(indices.shape[1])
    for row, size in zip(indices, sizes, strict=True):
        flat = flat * size + row
    return flat


def indices_of(flat: Tensor, sizes: Sequence[int]) -> Tensor:
    """What ``places`` was given."""
    rows = []
    for size in reversed(sizes):
        rows.append(flat.remainder(max(size, 1)))
        flat = flat.div(max(size, 1), rounding_mode="floor")
    return torch.stack(rows[::-1]) if rows else flat.new_zeros(0, flat.numel())


def made(indices: Tensor, values: Tensor, sizes: Sequence[int], coalesced: bool) -> Tensor:
    """A coordinate tensor over these two, which are not copied."""
    result: Tensor = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors(
        indices.shape[0],
        values.dim() - 1,
        list(sizes),
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        pin_memory=False,
        is_coalesced=coalesced,
    )
    return result


def summed(values: Tensor, places: Tensor, count: int) -> Tensor:
    """Rows of ``values`` (n, ...) summed by place: (count, ...). Of truth values: is any true."""
    if values.dtype == torch.bool:
        return summed(values.to(torch.int32), places, count).bool()
    sums: Tensor = values.new_zeros(count, *values.shape[1:]).index_add(0, places, values)
    return sums


def pairs(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """All ``(i, j)`` with ``left[i] == right[j]``, by ascending ``i``; how many is data."""
    order = right.argsort(stable=True)
    ordered = right[order]
    first = torch.searchsorted(ordered, left)
    counts = torch.searchsorted(ordered, left, right=True) - first
    i = torch.repeat_interleave(counts)
    within = torch.arange(i.numel(), device=i.device) - (counts.cumsum(0) - counts)[i]
    return i, order[first[i] + within]


def into(function: Program, *args: Any, out: Tensor, **kwargs: Any) -> Tensor | None:
    """Write what a program makes into ``out``, of its layout, sizes and a dtype that holds it."""
    found = function(*args, **kwargs)
    if not isinstance(found, Tensor) or not torch.can_cast(found.dtype, out.dtype):
        return None
    if is_dense(out) and is_dense(found) and out.shape == found.shape:
        return out.copy_(found)
    if not is_coordinates(out) or not is_coordinates(found):
        return None
    torch.ops.aten.copy_sparse_to_sparse_(out, found.to(out.dtype))
    return out


@program("_coalesce")
def coalesce(x: Tensor) -> Tensor:
    """Indices in row-major order, each once, and the sums of what had them."""
    indices, values = x._indices(), x._values()
    if indices.shape[1] < 2:
        return made(indices.clone(), values.clone(), x.shape, True)
    sizes = x.shape[: x.sparse_dim()]
    flat, group = torch.unique(places(indices, sizes), sorted=True, return_inverse=True)
    return made(indices_of(flat, sizes), summed(values, group, flat.numel()), x.shape, True)


@program("add.Tensor")
def add(x: Tensor, y: Tensor, *, alpha: Any = 1) -> Tensor | None:
    """A coordinate tensor plus another, or a dense one plus one."""
    if not isinstance(y, Tensor) or x.shape != y.shape or not is_coordinates(y):
        return None
    dtype = torch.result_type(x, y)
    if torch.result_type(torch.empty(0, dtype=dtype, device="meta"), alpha) != dtype:
        return None  # which PyTorch refuses
    if is_coordinates(x):
        return _joined(x, y, alpha, dtype)
    return _added(x.to(dtype), y, alpha) if is_dense(x) else None


def _joined(x: Tensor, y: Tensor, alpha: Any, dtype: torch.dtype) -> Tensor | None:
    if x.sparse_dim() != y.sparse_dim():
        return None
    values = [x._values().to(dtype), y._values().to(dtype) * alpha]
    both = made(torch.cat([x._indices(), y._indices()], 1), torch.cat(values), x.shape, False)
    return both.coalesce() if x.is_coalesced() and y.is_coalesced() else both


def _added(x: Tensor, y: Tensor, alpha: Any) -> Tensor:
    """A dense ``x`` with ``alpha * y``."""
    sizes = x.shape[: y.sparse_dim()]
    rows = x.reshape(math.prod(sizes), *x.shape[y.sparse_dim() :])
    values = y._values().to(x.dtype)
    values = values if alpha == 1 else values * alpha
    sums: Tensor = rows.index_add(0, places(y._indices(), sizes), values)
    return sums.reshape(x.shape)


@program("sub.Tensor")
def subtract(x: Tensor, y: Tensor, *, alpha: Any = 1) -> Tensor | None:
    """As ``add``, of what is negated."""
    return add(x, y, alpha=-alpha)


@program("add_.Tensor")
def add_(x: Tensor, y: Tensor, *, alpha: Any = 1) -> Tensor | None:
    """``add`` in place."""
    return into(add, x, y, alpha=alpha, out=x)


@program("sub_.Tensor")
def subtract_(x: Tensor, y: Tensor, *, alpha: Any = 1) -> Tensor | None:
    """``sub`` in place."""
    return add_(x, y, alpha=-alpha)


@program("mul.Tensor")
def multiply(x: Any, y: Any) -> Tensor | None:
    """A coordinate tensor times a number, or element by element times a dense one of its sizes."""
    x, y = (x, y) if is_coordinates(x) else (y, x)
    if is_coordinates(y):
        return _matched(x, y)
    if is_dense(y) and y.dim() and y.shape == x.shape:
        factor = y[tuple(x._indices())]
    elif not isinstance(y, Tensor) or (is_dense(y) and not y.dim()):
        factor = y
    else:
        return None
    values = x._values() * factor
    dtype = torch.result_type(x, y)
    return made(x._indices().clone(), values.to(dtype), x.shape, x.is_coalesced())


def _matched(x: Tensor, y: Tensor) -> Tensor | None:
    """Products of elements at one place."""
    if x.shape != y.shape or x.sparse_dim() != y.sparse_dim():
        return None
    coalesced = x.is_coalesced() and y.is_coalesced()
    x, y, sizes = x.coalesce(), y.coalesce(), x.shape[: x.sparse_dim()]
    i, j = pairs(places(x._indices(), sizes), places(y._indices(), sizes))
    return made(x._indices()[:, i], x._values()[i] * y._values()[j], x.shape, coalesced)


@program("sparse_mask")
def masked(x: Tensor, mask: Tensor) -> Tensor | None:
    """The elements of ``x``, dense or coordinate, at the places of ``mask``; zero where none is."""
    if x.shape != mask.shape or not is_coordinates(mask):
        return None
    indices, sizes = mask._indices(), mask.shape[: mask.sparse_dim()]
    if is_dense(x):
        values = x[tuple(indices)] if sizes else x.expand(indices.shape[1], *x.shape)
        return made(indices.clone(), values, x.shape, mask.is_coalesced())
    if not is_coordinates(x) or x.sparse_dim() != mask.sparse_dim():
        return None
    i, j = pairs(places(indices, sizes), places(x._indices(), sizes))
    values = summed(x._values()[j], i, indices.shape[1])
    return made(indices.clone(), values, x.shape, mask.is_coalesced())


@program("index_select")
def selected(x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    """Parts of a dimension, each as often as it is named."""
    dim = dim + x.dim() if dim < 0 else dim
    if not 0 <= dim < x.dim() or index.dim() != 1 or index.dtype != torch.int64:
        return None
    sizes, indices, values = list(x.shape), x._indices(), x._values()
    sizes[dim] = index.numel()
    if dim >= x.sparse_dim():
        values = values.index_select(dim - x.sparse_dim() + 1, index)
        return made(indices.clone(), values, sizes, False)
    named = torch.arange(x.shape[dim], device=index.device)[index]  # checks, and may count back
    i, j = pairs(named, indices[dim])
    rows = [i if at == dim else row[j] for at, row in enumerate(indices)]
    return made(torch.stack(rows), values[j], sizes, False)


@program("_sparse_sparse_matmul")
def matmul(x: Tensor, y: Tensor) -> Tensor | None:
    """Two coordinate matrices (n, m) and (m, k): a coordinate one (n, k)."""
    if not (is_coordinates(x) and is_coordinates(y)) or x.dtype != y.dtype:
        return None
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[0] or x.dense_dim() or y.dense_dim():
        return None
    (rows, inner), (same, columns) = x._indices(), y._indices()
    i, j = pairs(inner, same)
    indices, sizes = torch.stack([rows[i], columns[j]]), (x.shape[0], y.shape[1])
    return made(indices, x._values()[i] * y._values()[j], sizes, False).coalesce()


@program("mul_.Tensor")
def multiply_(x: Tensor, y: Any) -> Tensor | None:
    """``mul`` in place."""
    return into(multiply, x, y, out=x)


def as_coordinates(x: Tensor) -> Tensor:
    """A sparse matrix of whatever layout as a coordinate tensor."""
    return x if is_coordinates(x) or is_dense(x) else x.to_sparse()


@program("mm", compressed=True)
def mm(x: Tensor, y: Tensor) -> Tensor | None:
    """A sparse matrix (n, m) times a dense one (m, k): dense (n, k)."""
    x = as_coordinates(x)
    if not is_coordinates(x) or not is_dense(y) or x.dense_dim() or x.dtype != y.dtype:
        return None
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[0]:
        return None
    rows, columns = x._indices()
    return summed(x._values()[:, None] * y.index_select(0, columns), rows, x.shape[0])


@program("addmm", compressed=True)
def addmm(c: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor | None:
    """``beta * c + alpha * (x @ y)`` of a sparse matrix and dense ones."""
    product = mm(x, y)
    if not isinstance(product, Tensor) or not is_dense(c) or c.dtype != product.dtype:
        return None
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # whatever is in it, as PyTorch has it
        return product
    return c.expand(product.shape).mul(beta) + product


@program("bmm")
def bmm(x: Tensor, y: Tensor) -> Tensor | None:
    """A batch of coordinate matrices (b, n, m) times dense ones (b, m, k): dense (b, n, k)."""
    if not is_coordinates(x) or not is_dense(y) or x.dense_dim() or x.dtype != y.dtype:
        return None
    if x.dim() != 3 or y.dim() != 3 or x.shape[0] != y.shape[0] or x.shape[2] != y.shape[1]:
        return None
    (batch, n, _), k = x.shape, y.shape[2]
    which, rows, columns = x._indices()
    products = x._values()[:, None] * y[which, columns]
    return summed(products, which * n + rows, batch * n).reshape(batch, n, k)
