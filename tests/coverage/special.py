"""Entries of the databases that are not run, or whose values are not compared one to one."""

from __future__ import annotations

from fnmatch import fnmatchcase

EXCLUDED: dict[str, str] = {
    "op:jiterator_*": "compiles CUDA source; PyTorch's CPU has no such operator",
    "op:torch.ops.aten._flash_attention_forward": "PyTorch's CPU has no kernel of it",
    "op:torch.ops.aten._efficient_attention_forward": "PyTorch's CPU has no kernel of it",
    "op:nn.functional.batch_norm.without_cudnn": "the entry is for CUDA only",
    "optim:SparseAdam": "takes sparse gradients only: tests/device/sparse",
    "op:sparse.*": "takes sparse tensors, of which PyTorch's own test files are run",
}
"""Key, perhaps a pattern -> why the entry is not run."""

UNINITIALISED = frozenset(
    f"op:{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    )
)
"""Results are memory that nothing was written to: their values are not compared."""

AMBIGUOUS = frozenset(
    f"op:{name}"
    for name in (
        "geqrf",
        "linalg.eig",
        "linalg.eigh",
        "linalg.ldl_factor",
        "linalg.ldl_factor_ex",
        "linalg.qr",
        "linalg.svd",
        "pca_lowrank",
        "qr",
        "svd",
        "svd_lowrank",
    )
)
"""Factors that are unique up to signs or phases: values are compared after the sample's own
``output_process_fn_grad``, which takes the freedom out."""

TIES: dict[str, int] = {
    "op:argsort": 0,
    "op:kthvalue": 1,
    "op:median": 0,
    "op:nanmedian": 0,
    "op:sort": 0,
    "op:topk": 1,
}
"""Key -> position of ``dim`` among the arguments. Which of several equal elements the indices
name is unspecified unless a sort is asked to be stable: they have to lead to the values."""

DISTINCT = frozenset({"op:argsort", "op:sort", "op:topk"})
"""Those of ``TIES`` whose indices name no element twice."""

WITHOUT_ONEDNN = frozenset({"op:torch._scaled_mm", "op:torch._scaled_mm_v2"})
"""What lies beyond the largest 8-bit float, oneDNN's kernel makes NaN on CPUs with AVX512-FP16 and
the largest number on others; ATen's own kernel saturates on each, and is what is compared with."""

ERRORS_OF_DATA = (
    "is out of bounds for dimension",
    "out of range",
    "invalid multinomial distribution",
    "probability tensor contains",
)
"""Texts of errors that depend on data. Fused and Strict do not wait for data: only Debug Eager
raises them at the call, and the check of such an error runs there."""

TOLERANCE: dict[str, float] = {
    "op:logcumsumexp": 20.0,  # its gradient subtracts large terms: ill-conditioned in float32
}
"""Key -> factor on the tolerance of the dtype."""


def excluded(key: str) -> str | None:
    """Why an entry is not run, or ``None``."""
    for pattern, reason in EXCLUDED.items():
        if fnmatchcase(key, pattern):
            return reason
    return None
