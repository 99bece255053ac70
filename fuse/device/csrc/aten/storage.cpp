// Kernels that give a tensor other memory: `resize_`, `set_`, and `tensor.data = other`.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/ResizeCommon.h>
#include <torch/library.h>

#include "runtime/buffer.h"

namespace fuse {

namespace {

const at::Tensor& resize_(
    const at::Tensor& self, c10::IntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  at::detail::check_size_nonnegative(sizes);
  const auto before = static_cast<int64_t>(self.storage().nbytes());
  if (self.sizes() != sizes) {
    resize_contiguous(self, sizes);
  }
  if (format.has_value()) { // of the same sizes too: the memory stays, and is seen in another order
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
      [[unlikely]] {
    at::native::fill_resize_deterministic_(self, before);
  }
  return self;
}

at::Tensor& set_source_storage(
    at::Tensor& self,
    at::Storage source,
    int64_t offset,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides) {
  auto* impl = self.unsafeGetTensorImpl();
  TORCH_CHECK(
      source.device() == self.device(),
      "Attempted to set the storage of a tensor on device \"",
      self.device(),
      "\" to a storage on different device \"",
      source.device(),
      "\".");
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (strides.empty() && !sizes.empty()) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides);
  }
  const size_t needed = at::detail::computeStorageNbytes(
      impl->sizes(), impl->strides(), impl->dtype().itemsize(), static_cast<size_t>(offset));
  if (needed > impl->unsafe_storage().nbytes()) {
    resize_storage(*impl->unsafe_storage().unsafeGetStorageImpl(), needed);
  }
  return self;
}

at::Tensor& set_source_whole(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_source_storage(self, std::move(source), 0, count, {});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_source_storage(
      self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

// A copy of all of the memory, seen as `self` sees it. Copy-on-write is PyTorch's way to make one
// later, and would copy what is at the data pointer; here a copy is made late as it is.
at::Tensor lazy_clone(const at::Tensor& self) {
  const auto bytes = static_cast<int64_t>(self.storage().nbytes() / self.element_size());
  return self.as_strided(bytes, 1, 0)
      .clone()
      .as_strided(self.sizes(), self.strides(), self.storage_offset());
}

bool is_set_to(const at::Tensor& self, const at::Tensor& source) {
  return self.storage().is_alias_of(source.storage()) &&
      self.storage_offset() == source.storage_offset() && self.sizes() == source.sizes() &&
      self.strides() == source.strides();
}

at::Tensor& set_nothing(at::Tensor& self) {
  const uint32_t layout = LayoutTable::global().intern(self.scalar_type(), {0});
  return set_source_storage(self, make_storage(0, layout, self.device().index()), 0, 0, {});
}

// Whether `tensor.data = other` may make one the other in place, as `module.to("tpu")` does with
// every parameter: only so do tied weights stay tied, and optimizers keep what they hold. Both
// are plain tensors, on the device or on the CPU, of PyTorch's own class TensorImpl.
bool may_become(const at::Tensor& self, const at::Tensor& other) {
  const auto plain = [](const at::Tensor& tensor) {
    const c10::DispatchKeySet keys = tensor.key_set();
    return (tensor.is_cpu() || tensor.is_privateuseone()) && keys.has(c10::DispatchKey::Dense) &&
        !keys.has_any(c10::python_ks);
  };
  return (plain(self) && plain(other)) ||
      self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(other.key_set());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_source_storage);
  m.impl("set_.source_Storage", &set_source_whole);
  m.impl("set_.source_Tensor", &set_source_tensor);
  m.impl("set_", &set_nothing);
  m.impl("_lazy_clone", &lazy_clone);
  m.impl("is_set_to", &is_set_to);
  m.impl("_has_compatible_shallow_copy_type", &may_become);
}

// A question is nothing to differentiate. PyTorch's own kernel would look for the history of what
// is asked about, and raise where a view has lost it.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", torch::CppFunction::makeFallthrough());
}

} // namespace

} // namespace fuse
