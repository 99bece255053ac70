#include "runtime/transfer.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/python_variable.h>

#include "runtime/host_memory.h"
#include "runtime/layout.h"

namespace fuse {

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

PyRef to_backend(const ArrayHandle& handle, uint32_t layout, int8_t device) {
  const Layout& shape = LayoutTable::global().get(layout);
  return call_engine(
      "put",
      pack(
          PyRef::steal(checked(THPVariable_Wrap(bytes_of(handle.host())))),
          PyRef::borrow(dtype_name(shape.dtype)),
          int_tuple(shape.shape),
          make_int(device)));
}

} // namespace fuse
