"""Solutions of least-squares problems.

By the singular value decomposition, whichever driver is named: LAPACK's drivers differ in how
they find the same solution, of least norm where there are several, and in what else they return.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fuse.device.composites.registry import cpp_name, kernel

_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _fail(text: str) -> None:
    raise RuntimeError(f"torch.linalg.lstsq: {text}")


def _check(a: Tensor, b: Tensor, driver: str) -> None:
    if a.dim() < 2:
        _fail("input must have at least 2 dimensions.")
    if b.dim() < 1:
        _fail("other must have at least 1 dimension.")
    if not 0 <= a.dim() - b.dim() <= 1:
        _fail("input.dim() must be greater or equal to other.dim() and "
              "(input.dim() - other.dim()) <= 1")  # fmt: skip
    if a.dtype != b.dtype:
        _fail("Expected input and other to have the same dtype, but got input's dtype "
              f"{cpp_name(a.dtype)} and other's dtype {cpp_name(b.dtype)}")  # fmt: skip
    if a.dtype not in _DTYPES:
        raise RuntimeError("This function doesn't handle types other than float and double")
    if driver not in _DRIVERS:
        _fail("parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    axis = -1 if _is_vector(a, b) else -2
    if b.shape[axis] != a.shape[-2]:
        _fail(f"input.size(-2) should match other.size({axis})")


def _is_vector(a: Tensor, b: Tensor) -> bool:
    return b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])


def _columns_first(solution: Tensor, rows: int) -> Tensor:
    """The solution in the memory LAPACK leaves it in: the first rows of taller columns."""
    *batch, count, columns = solution.shape
    home = solution.new_empty((*batch, columns, max(rows, count))).mT[..., :count, :]
    return home.copy_(solution)


@kernel("linalg_lstsq")
def _lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Solution, residuals (of full rank and more rows than columns), rank, singular values.

    What the driver does not compute is empty, as on the CPU. With "gelsd" and "gelss" whether
    there are residuals depends on the rank: one host read.
    """
    driver = driver or "gelsy"
    _check(self, b, driver)
    rows, columns = self.shape[-2:]
    right = b.unsqueeze(-1) if _is_vector(self, b) else b
    u, values, vh = torch.linalg.svd(self, full_matrices=False)
    residuals, singular = values.new_empty(0), values.new_empty(0)
    rank = torch.empty(0, dtype=torch.int64, device=b.device)
    used = values > 0
    if driver != "gels":
        default = torch.finfo(values.dtype).eps * max(rows, columns)
        largest = values.amax(-1, keepdim=True) if values.shape[-1] else values
        used = values > largest * (default if rcond is None else rcond)
        rank = used.sum(-1)
    inverse = torch.where(used, 1 / torch.where(used, values, 1), 0).to(self.dtype)
    solution = vh.mH @ (inverse.unsqueeze(-1) * (u.mH @ right))
    if driver in ("gelsd", "gelss"):
        singular = values
    full = driver == "gels" or (singular is values and bool((rank == columns).all()))
    if rows > columns and full:
        residuals = (self @ solution - right).abs().square().sum(-2)
    solution = _columns_first(solution, rows)
    return solution.squeeze(-1) if right is not b else solution, residuals, rank, singular
