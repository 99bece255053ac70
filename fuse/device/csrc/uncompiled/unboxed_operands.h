// What a call's tensors say about whether it may run uncompiled.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace fuse {

// What the tensors of a call are, all together: some nanoseconds each.
class UnboxedOperands {
 public:
  void see(const at::Tensor& tensor);
  void see(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) {
      see(*tensor);
    }
  }
  void see(const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) {
      see(tensor);
    }
  }
  template <typename Other>
  void see(const Other&) {} // no tensor

  // Whether each has its value and is of one device, or is a number on the host: no error to be
  // raised, nothing to be waited for, no lazy conjugation to be carried out.
  bool plain() const {
    return plain_ && device_ >= 0;
  }
  bool ragged() const {
    return ragged_;
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
  // Bytes behind the largest.
  size_t most_bytes() const {
    return most_bytes_;
  }

 private:
  bool plain_ = true;
  bool ragged_ = false;
  int8_t device_ = -1;
  int64_t elements_ = 0;
  uint64_t hash_ = 1;
  size_t most_bytes_ = 0;
};

} // namespace fuse
