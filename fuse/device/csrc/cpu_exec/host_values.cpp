#include "cpu_exec/host_values.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <utility>

#include "runtime/copier.h"
#include "runtime/transfer.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

thread_local CutReason read_reason = CutReason::HostRead;

// Whether the buffer's value is in host memory as a tensor of this very geometry: what one kernel
// made and another reads as it is. It must not be written to.
bool is_host_value(const at::Tensor& tensor, const Buffer& buffer) {
  if (buffer.pending || buffer.poison || !buffer.array.defined()) {
    return false;
  }
  const at::Tensor& host = buffer.array->host();
  return host.defined() && host.scalar_type() == tensor.scalar_type() &&
      tensor.storage_offset() == 0 && host.storage_offset() == 0 &&
      host.sizes() == tensor.sizes() && host.strides() == tensor.strides();
}

// Memory without a value is zeros.
at::Tensor zeroed(size_t nbytes) {
  at::Tensor bytes = at::Tensor(at::detail::empty_cpu({static_cast<int64_t>(nbytes)}, at::kByte));
  if (nbytes != 0) {
    std::memset(bytes.mutable_data_ptr(), 0, nbytes);
  }
  return bytes;
}

} // namespace

ReadReason::ReadReason(CutReason reason) : before_(std::exchange(read_reason, reason)) {}

ReadReason::~ReadReason() {
  read_reason = before_;
}

at::Tensor memory_behind(Buffer* buffer, bool kept) {
  // A value that is there already needs no lock: changing it at the same time would be a race
  // of the program's own.
  const bool there = !buffer->pending && !buffer->poison;
  Array array = there ? buffer->array : Recorder::global().materialise(buffer, read_reason);
  if (!array.defined()) {
    return zeroed(buffer->nbytes);
  }
  at::Tensor dense = array->host();
  if (!dense.defined()) {
    dense = fetch(array->get());
    if (kept) {
      array->set_host(dense);
    }
  }
  const bool grown = static_cast<size_t>(dense.numel()) * dense.element_size() < buffer->nbytes;
  return grown ? padded(bytes_of(dense), buffer->nbytes) : dense;
}

at::Tensor value_on_host(const at::Tensor& tensor) {
  Buffer* buffer = Buffer::of(tensor);
  return is_host_value(tensor, *buffer) ? buffer->array->host()
                                        : view_of(tensor, memory_behind(buffer, false));
}

std::optional<at::Tensor> value_here(const at::Tensor& tensor) {
  const Buffer* buffer = Buffer::of(tensor);
  const bool here = buffer != nullptr && is_host_value(tensor, *buffer);
  return here ? std::optional(buffer->array->host()) : std::nullopt;
}

at::Tensor operand_on_host(const at::Tensor& tensor) {
  Buffer* buffer = Buffer::of(tensor);
  if (is_host_value(tensor, *buffer)) {
    return buffer->array->host();
  }
  const at::Tensor memory = memory_behind(buffer, true);
  at::Tensor view = view_of(tensor, memory);
  if (tensor.is_contiguous() && covers_storage(tensor) && buffer->array.defined() &&
      memory.is_alias_of(buffer->array->host())) { // not where it is padded
    buffer->array->set_host(view); // as this tensor, mostly a weight, will be read again
  }
  return view;
}

at::Tensor from_host(at::Tensor result, int8_t device) {
  if (result._is_zerotensor()) { // zeros without memory, which forward gradients begin with
    result = at::zeros(result.sizes(), result.options());
  }
  if (result.is_conj() || result.is_neg()) [[unlikely]] { // as linalg's wrappers leave some
    result = result.resolve_conj().resolve_neg();
  }
  c10::SmallVector<int64_t, 6> shape;
  const auto nbytes = static_cast<size_t>(result.numel()) * result.element_size();
  const bool whole = result.storage_offset() == 0 && result.storage().nbytes() == nbytes &&
      physical_shape(result.sizes(), result.strides(), shape);
  if (!whole) {
    result = result.clone(); // keeps dense strides, makes others row-major
    physical_shape(result.sizes(), result.strides(), shape);
  }
  const uint32_t layout = LayoutTable::global().intern(result.scalar_type(), shape);
  c10::Storage storage = make_storage(nbytes, layout, device);
  Buffer* buffer = Buffer::of(storage);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), result.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
  buffer->array = c10::make_intrusive<ArrayHandle>(std::move(result));
  buffer->array->has(nbytes);
  return tensor;
}

bool is_kernels_limit(const c10::Error& error) {
  return dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr ||
      std::strstr(error.what_without_backtrace(), "can't allocate memory") != nullptr;
}

at::Tensor host_tensor(const at::Tensor& tensor) {
  check_process();
  Copier::global().wait_for_stream(Streams::global().here().number());
  Recorder::global().begin_read();
  if (tensor.numel() == 0) {
    return at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
  }
  return value_on_host(tensor);
}

} // namespace fuse
