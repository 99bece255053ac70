#include "device/sharing.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/strides.h>

#include "cpu_exec/host_values.h"
#include "runtime/buffer.h"
#include "runtime/process.h"
#include "runtime/transfer.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

// Whether the buffer's array has the tensor's elements in the tensor's order.
bool is_whole(const at::Tensor& tensor, const Buffer& buffer) {
  const Layout& layout = LayoutTable::global().get(buffer.layout);
  return layout.dtype == tensor.scalar_type() && tensor.is_contiguous() && covers_storage(tensor) &&
      c10::multiply_integers(layout.shape) == tensor.numel();
}

} // namespace

PyRef share_array(const at::Tensor& tensor) {
  check_process();
  Recorder::global().begin_read();
  Buffer* buffer = Buffer::of(tensor);
  const Array array = Recorder::global().materialise(buffer, CutReason::HostRead);
  if (!array.defined() || !is_whole(tensor, *buffer)) {
    return PyRef::borrow(Py_None);
  }
  if (array->get() == nullptr) {
    array->replace(to_backend(*array, buffer->layout, buffer->device).get());
  }
  array->share();
  return PyRef::borrow(array->get());
}

at::Tensor adopt_array(
    PyObject* array, c10::ScalarType dtype, c10::IntArrayRef sizes, int8_t device) {
  check_process();
  const auto strides = c10::contiguous_strides(sizes);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  const size_t nbytes = at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
  c10::Storage storage = make_storage(nbytes, LayoutTable::global().intern(dtype, sizes), device);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  Py_INCREF(array);
  auto handle = c10::make_intrusive<ArrayHandle>(array);
  handle->share();
  handle->has(nbytes);
  Buffer::of(tensor)->array = std::move(handle);
  return tensor;
}

} // namespace fuse
