"""Why tests of PyTorch's that pass on the CPU need not pass on the device."""

from __future__ import annotations

from typing import Final

from tests.upstream.suite import Reasons

DENSE: Final = "README: no tensors that are quantised, or strided and nested"
HOST_MEMORY: Final = "README: a tensor's memory has no address that the host could read or write"
CPU_BY_NAME: Final = "the test makes some of its tensors on the CPU, whatever the default device"
NUMPY: Final = "the test hands a tensor of the device to NumPy, which takes those of the host"
LATE: Final = "README: an index out of bounds is an error where a result is read, not at the call"
ORDER: Final = "README: last digits differ, as sums and products are in another order"
COMPLEX: Final = "infinities and NaN of complex numbers: a product with 1 is no operation here"
COPY_ON_WRITE: Final = "clones are made at once: copy on write is of memory with an address"
CHECKS: Final = "PyTorch checks coalesced indices by a loop that it has for CUDA and the CPU alone"
REFUSED: Final = "the test leaves out for the CPU what the CPU refuses, by the device's name"
CHECKED: Final = "the test is of what PyTorch checks for CUDA's tensors and the CPU's by name"
EXPECTED_TEXT: Final = "the test expects a text that names the CPU"
CYCLES: Final = "the test counts all of Python's cycles, and what compiles leaves some"
GAPS: Final = "a functional copy is dense: no gap between its elements, which nobody could see"
OTHER_TRACE: Final = "README: last digits differ, as a second run is in another trace"
INDUCTOR: Final = "the test reads the code that Inductor makes, or calls what makes it"
INFERRED: Final = "PyTorch infers another order of memory for devices that it does not know"
TIERS: Final = (
    "an unused result of a private operator has the CPU kernel's shape, or the inferred one"
)
MEMORY: Final = "a sum of eight bits' numbers that takes 4 GiB at once"

OUTSIDE: Final = ("README", "the test")
"""How the reasons begin that are no fault of the device's."""

TEXTS: Final[dict[str, tuple[str, ...]]] = {
    DENSE: (
        r"the tpu device has no (quantized|nested) tensors",
        r"No dispatch mode was found.*(nested|NestedTensor)",
    ),
    HOST_MEMORY: (
        r"was made of an address, where the device has no memory of its own",
        r"hint: slice a tensor, or storage\.cpu\(\), which is a copy",
        r"Cannot access data pointer of Tensor",
    ),
    EXPECTED_TEXT: (r"To accept the new output, re-run test with envvar EXPECTTEST_ACCEPT=1",),
    OTHER_TRACE: (r"Backward is not reentrant, i\.e\., running backward with same input",),
    CHECKED: (
        r"autograd_registration_check: NYI devices other than CPU/CUDA/XPU",
        r"rng_prims\.py.*\n.*\n.*Backend not supported for tpu",
    ),
    INDUCTOR: (
        r"metrics\.generated_\w+, ",
        r"No module named 'torch_tpu'",
        r"in run_and_get_\w*code",
    ),
    NUMPY: (r"can't convert tpu:0 device type tensor to numpy",),
    CPU_BY_NAME: (
        r"Expected all tensors to be on the same device, but found at least two devices, "
        r"(tpu:0 and cpu|cpu and tpu:0)",
        r"Expected a 'tpu' device type for generator but found 'cpu'",
        r"is not an instance of <class 'torch\.\w+Tensor'>",
        r"'lengths' argument should be a 1D CPU int64 tensor",
        r"indices should be either on cpu or on the same device as the indexed tensor \(cpu\)",
        r'Attempted to set the storage of a tensor on device "cpu" to a storage on different',
    ),
}
"""Expressions that a failed test's traceback holds."""

TESTS: Final[dict[str, tuple[str, ...]]] = {
    COPY_ON_WRITE: ("test_torch:*.test_lazy_clone_*",),
    INDUCTOR: ("test_nestedtensor:*.test_to_padded_tensor_compile_*",),
    CHECKS: ("test_sparse:TestSparseAny.test_as_sparse_gradcheck_SparseCOO_masked_*",),
    REFUSED: (
        "test_sparse_csr:TestSparseCSR.test_block_triangular_solve_*",
        "test_sparse_csr:TestSparseCSR.test_sparse_csr_unary_inplace_abs_cpu_complex64",
    ),
    LATE: (
        "nn/test_embedding:*.test_embedding_bag_out_of_bounds_idx_*",
        "test_indexing:NumpyTests.test_trivial_fancy_out_of_bounds_cpu",
        "test_indexing:TestIndexing.test_advancedindex_cpu_*",
    ),
    CPU_BY_NAME: (
        "nn/test_embedding:TestEmbeddingNN.test_move_sparse_half_embedding",
        "nn/test_lazy_modules:TestLazyModules.test_materialize_device",
        "test_sparse_csr:TestSparseCompressed.test_*_shape_and_device_inference___from_list_*",
        "test_torch:TestTorch.test_to",
    ),
    INFERRED: ("inductor/test_torchinductor:*.test_cat_of_loops_and_extern_kernel_gpu",),
    TIERS: (
        "inductor/test_torchinductor:*.test_embedding_bag_gpu",
        "inductor/test_torchinductor_dynamic_shapes:*.test_embedding_bag_*",
    ),
    MEMORY: (
        "inductor/test_torchinductor:*.test_large_broadcast_reduction_gpu",
        "inductor/test_torchinductor_dynamic_shapes:*.test_large_broadcast_reduction_*",
    ),
    CYCLES: ("nn/test_load_state_dict:*.test_load_state_dict_ref_cycle_*",),
    GAPS: (
        "test_functionalization:*.test_copy_stride_mismatch",
        "inductor/test_torchinductor_dynamic_shapes:*.test_exact_stride_*",
    ),
    CHECKED: (
        "test_linalg:TestLinalg.test_linalg_lstsq_input_checks_cpu_*",
        "test_nn:TestNNDeviceType.test_upsamplingBiMode2d_nonsupported_dtypes_*_uint8",
        "nn/test_convolution:*.test_conv_backend_slow*",
    ),
    COMPLEX: ("test_binary_ufuncs:*.test_reference_numerics_extremal_values_sub_cpu_complex*",),
    ORDER: (
        "test_nestedtensor:*.test_layer_norm_reduce_ragged_idx_1_*",
        "test_scatter_gather_ops:*.test_scatter__reductions_cpu_float32",
        "test_scatter_gather_ops:*.test_scatter_reduce_prod_cpu_complex*",
        "nn/test_convolution:*.test_conv3d_vs_scipy_*_cpu_float32",
        "test_segment_reductions:*.test_pytorch_scatter_test_cases_reduce_prod_cpu_float64_int32",
        "test_torch:TestTorchDeviceType.test_gradient_all_cpu_float32",
    ),
}
"""Tests by name. One that passes in every lane must not be here."""

REASONS: Final = Reasons(TEXTS, TESTS, OUTSIDE)
