// Operand summary: what a call's tensors say of whether it may run uncompiled.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "runtime/buffer.h"

namespace fuse {

// What the tensors of a call are, all together: some nanoseconds each.
class OperandSummary {
 public:
  // One argument; `written` if the kernel writes its memory.
  void see(const at::Tensor& tensor, bool written = false);
  void see(const std::optional<at::Tensor>& tensor, bool written = false) {
    if (tensor.has_value()) {
      see(*tensor, written);
    }
  }
  void see(const at::ITensorListRef& tensors, bool written = false) {
    for (const at::Tensor& tensor : tensors) {
      see(tensor, written);
    }
  }
  void see(at::TensorList tensors, bool written = false) {
    for (const at::Tensor& tensor : tensors) {
      see(tensor, written);
    }
  }
  void see(const c10::List<std::optional<at::Tensor>>& tensors, bool = false);
  // Where the result is to be: one of the device's, or the one of the operands.
  void see(std::optional<c10::Device> device, bool = false);
  template <typename Other>
  void see(const Other&, bool = false) {} // no tensor

  // Whether each has its value and is of one device, or is a number on the host: no error to be
  // raised, nothing to be waited for, no lazy conjugation to be carried out. What is written nobody
  // else can see: the kernel may write to the value's own memory, and nothing is to be told of it.
  bool plain() const {
    return plain_ && device_ >= 0;
  }
  // Whether a kernel that knows nothing else may take them: see OpInfo::steps.
  bool dense_floats() const {
    return dense_floats_;
  }
  int8_t device() const {
    return device_;
  }
  int64_t elements() const {
    return elements_;
  }
  // Of their sizes and dtypes, in order.
  uint64_t hash() const {
    return hash_;
  }

 private:
  void see_written(const Buffer& buffer);

  bool plain_ = true;
  bool dense_floats_ = true;
  int8_t device_ = -1;
  int64_t elements_ = 0;
  uint64_t hash_ = 1;
};

} // namespace fuse
