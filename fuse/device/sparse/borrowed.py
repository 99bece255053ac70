"""Operators of sparse tensors whose CPU kernels ask nothing of a device.

They take apart and put together: what computes in them are operators of the indices and values,
which are dense and lie on the device.
"""

from __future__ import annotations

from typing import Final

STRUCTURE: Final = (
    *("_coalesced_", "_dimI", "_dimV", "_indices", "_nnz", "_values", "indices", "values"),
    *("dense_dim", "sparse_dim", "is_coalesced", "is_pinned", "empty.memory_format", "empty_like"),
    *("_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "clone", "copy_"),
    *("copy_sparse_to_sparse_", "resize_as_sparse_", "sparse_resize_", "zero_", "zeros.out"),
    *("sparse_resize_and_clear_", "_sparse_broadcast_to", "_to_sparse", "_to_sparse.sparse_dim"),
    *("_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc", "_to_dense", "cat"),
    *("narrow_copy", "permute", "unsqueeze", "view_as_complex", "view_as_real"),
)
REDUCTIONS: Final = (
    *("any", "sum", "sum.dim_IntList", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype"),
    *("native_norm", "native_norm.ScalarOpt_dim_dtype", "mv"),
)
BY_VALUE: Final = (
    *("abs", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1"),
    *("floor", "frac", "log1p", "nan_to_num", "neg", "rad2deg", "round", "sgn", "sign", "sin"),
    *("sinh", "sqrt", "tan", "tanh", "trunc"),
)
BY_NUMBER: Final = (
    *("div.Tensor", "div.Tensor_mode", "div.out", "div.out_mode", "div_.Tensor"),
    *("div_.Tensor_mode", "floor_divide", "floor_divide.out", "floor_divide_.Tensor"),
    *("pow.Tensor_Scalar", "pow.Tensor_Scalar_out", "threshold_backward"),
)
"""In three forms each."""
OTHERS_BY_VALUE: Final = (
    *("isinf", "isnan", "isneginf", "isneginf.out", "isposinf", "isposinf.out", "relu", "relu_"),
    *("signbit", "signbit.out"),
)
FORMS: Final = tuple(form for name in BY_VALUE for form in (name, f"{name}.out", f"{name}_"))
COORDINATES: Final = (*STRUCTURE, *REDUCTIONS, *FORMS, *OTHERS_BY_VALUE, *BY_NUMBER)
"""Of the layout ``torch.sparse_coo``."""
COMPRESSED: Final = (
    *("_nnz", "crow_indices", "col_indices", "ccol_indices", "row_indices", "values", "dense_dim"),
    *("sparse_dim", "clone", "copy_", "empty.memory_format", "empty_like", "is_pinned"),
    *("_to_sparse", "_to_sparse.sparse_dim", "_to_dense", "zero_", "resize_", "resize_as_sparse_"),
)
"""Of the four compressed ones: ``torch.sparse_csr`` and its kin."""
OF_DENSE: Final = (
    *("_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr"),
    "_to_sparse_bsc",
)
"""Operators of dense tensors that make sparse ones."""
