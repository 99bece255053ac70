#include "uncompiled/host_values.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "device/copier.h"

namespace fuse {

namespace {

thread_local CutReason read_reason = CutReason::HostRead;

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

at::Tensor fetch(PyObject* array) {
  GilGuard gil;
  drain_releases();
  PyRef bytes = call_engine("get", pack(PyRef::borrow(array)));
  auto* view = new Py_buffer;
  if (PyObject_GetBuffer(bytes.get(), view, PyBUF_SIMPLE) != 0) {
    delete view;
    throw_python_error();
  }
  auto release = [view](void*) {
    GilGuard inner;
    PyBuffer_Release(view);
    delete view;
  };
  return at::for_blob(view->buf, {view->len})
      .deleter(release)
      .options(at::TensorOptions().dtype(at::kByte))
      .make_tensor();
}

at::Tensor padded(const at::Tensor& bytes, size_t nbytes) {
  at::Tensor grown = at::zeros({static_cast<int64_t>(nbytes)}, bytes.options());
  const auto kept = std::min(nbytes, static_cast<size_t>(bytes.numel()));
  if (kept != 0) {
    std::memcpy(grown.mutable_data_ptr(), bytes.const_data_ptr(), kept);
  }
  return grown;
}

ReadReason::ReadReason(CutReason reason) : before_(std::exchange(read_reason, reason)) {}

ReadReason::~ReadReason() {
  read_reason = before_;
}

at::Tensor whole_storage(const at::Tensor& tensor, int64_t start) {
  return bytes_from(tensor, start, static_cast<int64_t>(tensor.storage().nbytes()) - start);
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

at::Tensor view_of(const at::Tensor& tensor, const at::Tensor& dense) {
  const auto start = first_byte(dense) / static_cast<int64_t>(tensor.element_size());
  at::Tensor view = sharing(dense, tensor.dtype(), start + tensor.storage_offset());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return view;
}

at::Tensor value_on_host(const at::Tensor& tensor) {
  Buffer* buffer = Buffer::of(tensor);
  return is_host_value(tensor, *buffer) ? buffer->array->host()
                                        : view_of(tensor, memory_behind(buffer, false));
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

at::Tensor host_tensor(const at::Tensor& tensor) {
  check_process();
  Copier::global().wait_for_stream(Streams::global().here().id.load(std::memory_order_relaxed));
  Recorder::global().end_uncompiled();
  if (tensor.numel() == 0) {
    return at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
  }
  return value_on_host(tensor);
}

PyRef to_backend(const ArrayHandle& handle, uint32_t layout, int8_t device) {
  const Layout& shape = LayoutTable::global().get(layout);
  return call_engine(
      "put",
      pack(
          PyRef::steal(checked(THPVariable_Wrap(bytes_of(handle.host())))),
          PyRef::borrow(dtype_name(shape.dtype)),
          make_tuple(shape.shape),
          make_int(device)));
}

} // namespace fuse
