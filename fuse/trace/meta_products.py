"""Shape inference for products where PyTorch's is of no use.

Of groups of rows, which it has for bfloat16 alone, and of batches that are added to something in
another dtype, whose dtype it takes for a factor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _fail_unless(holds: bool, text: str) -> None:
    if not holds:
        raise RuntimeError(text)


def _grouped_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The CPU's checks and texts, but for its kernel's wish for rows of whole 16 bytes."""
    for name, value in (("mat_a", self), ("mat_b", mat2)):
        _fail_unless(
            value.dtype in _DTYPES,
            f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {value.dtype}",
        )
        _fail_unless(value.dim() in (2, 3), f"{name} has to be 2 or 3d")
    flat = self.dim() == 2 or mat2.dim() == 2
    _fail_unless(
        self.dtype == mat2.dtype,
        f"expected m1 and m2 to have the same dtype, but got: {self.dtype} != {mat2.dtype}",
    )
    _fail_unless(
        self.shape[-1] == mat2.shape[-2], "contraction dimension of mat_a and mat_b must match"
    )
    _fail_unless(bias is None, "Bias not supported yet")
    _fail_unless(
        out_dtype in (None, self.dtype), "Grouped gemm output dtype must match `mat_a` dtype"
    )
    _fail_unless(
        (offs is not None) == flat,
        "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d",
    )
    if offs is None:
        _fail_unless(self.shape[0] == mat2.shape[0], "batched dimension has to match")
        return self.new_empty((self.shape[0], self.shape[1], mat2.shape[2]))
    _fail_unless(offs.dim() == 1, "offs has to be 1D")
    _fail_unless(offs.dtype == torch.int32, "Offsets have to be int32")
    for value in (self, mat2):
        _fail_unless(
            value.dim() == 2 or value.shape[0] == offs.shape[0], "matrix batch sizes have to match"
        )
    shape = (self.shape[-2], mat2.shape[-1])
    both = self.dim() == mat2.dim() == 2
    return self.new_empty((offs.shape[0], *shape) if both else shape)


def _baddbmm_dtype(
    self: torch.Tensor,
    batch1: torch.Tensor,
    batch2: torch.Tensor,
    out_dtype: torch.dtype,
    **factors: float,
) -> torch.Tensor:
    made = torch.bmm(batch1, batch2, out_dtype=out_dtype)
    self.expand(made.shape)  # raises where it cannot be added
    return made


TABLE: dict[str, Callable[..., object]] = {
    "_grouped_mm": _grouped_mm,
    "baddbmm.dtype": _baddbmm_dtype,
}
