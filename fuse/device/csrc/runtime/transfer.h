// Transfers of values between the backend and host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/array_handle.h"
#include "runtime/python_bridge.h"

namespace fuse {

// The bytes of a backend array, kept alive by the tensor; waits for them, and takes the GIL for it.
at::Tensor fetch(PyObject* array);
// A backend array of a value that is in host memory only. GIL held.
PyRef to_backend(const ArrayHandle& handle, uint32_t layout, int8_t device);

} // namespace fuse
