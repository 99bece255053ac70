// Shared arrays: backend arrays that the program holds beside the device (fuse/device/sharing.py).
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/python_bridge.h"

namespace fuse {

// The backend's array of a tensor that is all of its buffer in row-major order, never donated from
// now on; None for any other tensor. Cuts if the value is pending. GIL held.
PyRef share_array(const at::Tensor& tensor);
// A tensor whose value is a backend array that others hold as well. GIL held.
at::Tensor adopt_array(
    PyObject* array, c10::ScalarType dtype, c10::IntArrayRef sizes, int8_t device);

} // namespace fuse
