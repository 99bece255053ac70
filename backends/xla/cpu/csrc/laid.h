#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <vector>

#include "xla/ffi/api/ffi.h"

namespace fuse {

// A list among a custom call's attributes.
using Integers = xla::ffi::Span<const int64_t>;

inline at::IntArrayRef list(Integers integers) {
  return {integers.begin(), integers.size()};
}

// A float32 buffer as a row-major tensor of its own shape.
inline at::Tensor dense(const xla::ffi::AnyBuffer& buffer) {
  return at::from_blob(
      buffer.untyped_data(), list(buffer.dimensions()), at::TensorOptions().dtype(at::kFloat));
}

// The part of `count` float32 numbers that begins at `start`, of these sizes and strides.
inline at::Tensor part_of(
    float* data, int64_t count, int64_t start, at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t last = start;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    last += (sizes[dim] - 1) * strides[dim];
  }
  TORCH_CHECK(last < count, "an operand reaches past its buffer");
  return at::from_blob(data + start, sizes, strides, at::TensorOptions().dtype(at::kFloat));
}

// A float32 buffer as a tensor whose dimension `order[i]` is the i-th from the outside in memory.
inline at::Tensor laid(const xla::ffi::AnyBuffer& buffer, at::IntArrayRef order) {
  auto dimensions = buffer.dimensions();
  std::vector<int64_t> sizes(order.size());
  std::vector<int64_t> strides(order.size());
  int64_t stride = 1;
  for (size_t place = order.size(); place-- > 0;) {
    const auto dimension = static_cast<size_t>(order[place]);
    sizes[dimension] = dimensions[place];
    strides[dimension] = stride;
    stride *= dimensions[place];
  }
  return at::from_blob(
      buffer.untyped_data(), sizes, strides, at::TensorOptions().dtype(at::kFloat));
}

} // namespace fuse
