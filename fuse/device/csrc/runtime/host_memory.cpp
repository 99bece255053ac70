#include "runtime/host_memory.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace fuse {

namespace {

int64_t first_byte(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
}

// A CPU tensor over the memory of `owner`, still without sizes.
at::Tensor sharing(const at::Tensor& owner, caffe2::TypeMeta dtype, int64_t offset) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(owner.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
  tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
  return tensor;
}

// `count` bytes of the memory of `owner`, from byte `start` on.
at::Tensor bytes_from(const at::Tensor& owner, int64_t start, int64_t count) {
  at::Tensor bytes = sharing(owner, caffe2::TypeMeta::Make<uint8_t>(), start);
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({count});
  return bytes;
}

} // namespace

at::Tensor padded(const at::Tensor& bytes, size_t nbytes) {
  at::Tensor grown = at::zeros({static_cast<int64_t>(nbytes)}, bytes.options());
  const auto kept = std::min(nbytes, static_cast<size_t>(bytes.numel()));
  if (kept != 0) {
    std::memcpy(grown.mutable_data_ptr(), bytes.const_data_ptr(), kept);
  }
  return grown;
}

at::Tensor whole_storage(const at::Tensor& tensor, int64_t start) {
  return bytes_from(tensor, start, static_cast<int64_t>(tensor.storage().nbytes()) - start);
}

at::Tensor view_of(const at::Tensor& tensor, const at::Tensor& dense) {
  const auto start = first_byte(dense) / static_cast<int64_t>(tensor.element_size());
  at::Tensor view = sharing(dense, tensor.dtype(), start + tensor.storage_offset());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return view;
}

at::Tensor reshaped(const at::Tensor& host, c10::IntArrayRef sizes) {
  at::Tensor tensor = sharing(host, host.dtype(), host.storage_offset());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor transposed(const at::Tensor& host) {
  at::Tensor tensor = sharing(host, host.dtype(), host.storage_offset());
  const std::array<int64_t, 2> sizes{host.size(1), host.size(0)};
  const std::array<int64_t, 2> strides{host.stride(1), host.stride(0)};
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      c10::IntArrayRef(sizes), c10::IntArrayRef(strides));
  return tensor;
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  const auto nbytes = tensor.numel() * static_cast<int64_t>(tensor.element_size());
  return bytes_from(tensor, first_byte(tensor), nbytes);
}

} // namespace fuse
