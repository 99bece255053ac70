// What the native core offers to other libraries: the values of the device's tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>
#include <c10/util/intrusive_ptr.h>

#include <string>

namespace fuse {

using Opaque = c10::intrusive_ptr<c10::intrusive_ptr_target>;

// A table of functions, which the core's module holds as a capsule of this name.
struct DeviceValues {
  static constexpr const char* kName = "fuse.device._core.values";

  // The value that `tensor` has now, kept whatever is written to it afterwards. Cuts, with the
  // reason `collective`, if the value is recorded only; does not wait until it has been computed.
  Opaque (*take)(const at::Tensor& tensor);
  // A taken value as a flat CPU tensor, row-major, not to be written to. Waits until it has been
  // computed, and takes the GIL for that.
  at::Tensor (*read)(const Opaque& taken);
  // The same elements in the same order as a backend array of any shape; null where there is none:
  // the value is in host memory, or not all of its storage. A new reference. GIL held.
  PyObject* (*array)(const Opaque& taken);
  // Gives `tensor` a value that is still to come, its elements row-major. Whoever reads it
  // waits for `fulfil` or `fail`. Where it is a part of a storage, or in another order, `whole`
  // becomes the tensor that gets the value, and `tensor` has it once `place` has been called: by
  // then somebody must be on the way to fulfil it, for what is not recorded waits for it there.
  Opaque (*promise)(const at::Tensor& tensor, at::Tensor& whole);
  void (*place)(const at::Tensor& tensor, const at::Tensor& whole);
  // The promised value: dense host memory that nobody writes to any more. No GIL needed.
  void (*fulfil)(const Opaque& promised, at::Tensor host);
  // The same as a backend array of the tensor's shape. GIL held.
  void (*fulfil_array)(const Opaque& promised, PyObject* array);
  // There will be no value: reading it raises this text.
  void (*fail)(const Opaque& promised, const std::string& why);
};

} // namespace fuse
