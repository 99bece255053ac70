"""Which of PyTorch's test files are run, and how each is told about the device."""

from __future__ import annotations

from typing import Final

GENERIC: Final = (
    "test_torch",
    "test_shape_ops",
    "test_tensor_creation_ops",
    "test_indexing",
    "test_view_ops",
    "test_reductions",
    "test_type_promotion",
    "test_sort_and_select",
    "test_scatter_gather_ops",
    "test_segment_reductions",
    "test_unary_ufuncs",
    "test_binary_ufuncs",
    "test_linalg",
    "test_spectral_ops",
    "test_complex",
    "test_masked",
    "test_numpy_interop",
    "test_dlpack",
    "test_foreach",
    "test_optim",
    "test_modules",
    "test_nn",
    "test_autograd",
    "test_transformers",
    "test_native_mha",
    "test_expanded_weights",
    "test_maskedtensor",
    "test_ops",
    "test_ops_gradients",
    "test_ops_fwd_gradients",
    "test_serialization",
    "test_testing",
    "test_utils",
    "test_custom_ops",
    "test_nestedtensor",
    "test_sparse",
    "test_sparse_csr",
    "nn/test_convolution",
    "nn/test_dropout",
    "nn/test_embedding",
    "nn/test_multihead_attention",
    "nn/test_parametrization",
    "nn/test_pooling",
    "functorch/test_eager_transforms",
    "functorch/test_vmap",
)
"""Their generic classes (``instantiate_device_type_tests``) are made for the device by PyTorch."""

BY_DEFAULT_DEVICE: Final = (
    "nn/test_init",
    "nn/test_lazy_modules",
    "nn/test_load_state_dict",
    "nn/test_module_hooks",
    "nn/test_packed_sequence",
    "nn/test_pruning",
    "optim/test_lrscheduler",
    "optim/test_optim",
    "optim/test_swa_utils",
    "test_autocast",
    "test_functional_optim",
    "test_functionalization",
    "test_namedtensor",
    "test_per_overload_api",
    "test_stateless",
    "test_subclass",
)
"""They name no device at all: they run with it as ``torch.set_default_device``."""

COMPILERS: Final = (
    "inductor/test_control_flow",
    "inductor/test_torchinductor",
    "inductor/test_torchinductor_dynamic_shapes",
    "inductor/test_torchinductor_opinfo",
    "inductor/test_unbacked_symints",
)
"""They make classes for a GPU, which the device stands for: see ``compilers``."""

CLASSES: Final = {"test_nestedtensor": ("TestNestedTensorSubclass", "TestNestedInt")}
"""Of these files only some classes are run, by their names without a device. Of nested tensors
others are strided, which the device has not, or take samples in a form that older helpers made."""

FILES: Final = (*GENERIC, *BY_DEFAULT_DEVICE, *COMPILERS)
"""Not here: what is quantised, TorchScript's, or another device's own, and what tests
PyTorch's compilers and tracers without a device.

Classes of the generic files that are not generic themselves run by the default device too.
"""


def is_run(file: str, name: str) -> bool:
    """Whether a test, by its name on the CPU, is of the classes that are run."""
    classes = CLASSES.get(file)
    return classes is None or name.partition(".")[0] in classes
