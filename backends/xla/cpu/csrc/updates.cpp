// A part of an array overwritten in place, as an XLA custom call. XLA has an operation of its own
// for it, but its CPU compiler evaluates that once for each reader it can fuse it with, each time
// on a whole copy of the array: a token written to a key-value cache copied it four times. And
// where the part is made of other elements of the array, it may read what it has overwritten.
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "handler.h"
#include "xla/ffi/api/ffi.h"

namespace fuse {
namespace {

namespace ffi = xla::ffi;
using Offset = ffi::BufferR0<ffi::DataType::S64>;

// Copies `count` pieces of `run` bytes, which follow each other in `source`, `step` bytes apart.
void copy_pieces(char* target, const char* source, int64_t count, int64_t step, size_t run) {
  const auto each = [&](auto size) { // a constant for single elements, which it makes one move
    for (int64_t piece = 0; piece < count; ++piece) {
      std::memcpy(target, source, size);
      target += step;
      source += static_cast<size_t>(size);
    }
  };
  switch (run) {
    case 1: return each(std::integral_constant<size_t, 1>());
    case 2: return each(std::integral_constant<size_t, 2>());
    case 4: return each(std::integral_constant<size_t, 4>());
    case 8: return each(std::integral_constant<size_t, 8>());
    case 16: return each(std::integral_constant<size_t, 16>());
    default: return each(run);
  }
}

// Copies `source`, pieces of `run` bytes one after another in `sizes`, to `target`, where they have
// these strides in bytes.
void scatter(
    char* target,
    const char* source,
    std::span<const int64_t> sizes,
    std::span<const int64_t> strides,
    size_t run) {
  if (sizes.empty()) {
    return copy_pieces(target, source, 1, 0, run);
  }
  const auto outer = sizes.first(sizes.size() - 1);
  std::vector<int64_t> index(outer.size(), 0);
  while (true) {
    copy_pieces(target, source, sizes.back(), strides.back(), run);
    source += static_cast<size_t>(sizes.back()) * run;
    size_t dim = outer.size();
    while (dim > 0 && ++index[dim - 1] == outer[dim - 1]) {
      --dim;
      target -= (outer[dim] - 1) * strides[dim];
      index[dim] = 0;
    }
    if (dim == 0) {
      return;
    }
    target += strides[dim - 1];
  }
}

// `out` is `base` with `value[i, j]` at the element `offset + i * strides[0] + j * strides[1]` of
// its memory, in any number of dimensions; XLA gives it the memory of `base`, or of a copy.
ffi::Error update(
    ffi::AnyBuffer base,
    ffi::AnyBuffer value,
    Offset offset,
    ffi::Result<ffi::AnyBuffer> out,
    ffi::Span<const int64_t> strides) {
  const auto width = static_cast<int64_t>(ffi::ByteWidth(base.element_type()));
  const int64_t first = *offset.typed_data();
  const auto dimensions = value.dimensions();
  int64_t last = first;
  std::vector<int64_t> sizes, steps;
  for (size_t dim = 0; dim < dimensions.size(); ++dim) {
    last += (dimensions[dim] - 1) * strides[dim];
    if (dimensions[dim] != 1) {
      sizes.push_back(dimensions[dim]);
      steps.push_back(strides[dim] * width);
    }
  }
  if (first < 0 || last >= static_cast<int64_t>(base.element_count())) {
    return ffi::Error::InvalidArgument("an update reaches outside the array that it is of");
  }
  int64_t run = width;
  while (!sizes.empty() && steps.back() == run) {
    run *= sizes.back();
    sizes.pop_back();
    steps.pop_back();
  }
  auto* memory = static_cast<char*>(out->untyped_data());
  if (memory != base.untyped_data()) {
    std::memcpy(memory, base.untyped_data(), base.size_bytes());
  }
  const auto* source = static_cast<const char*>(value.untyped_data());
  scatter(memory + first * width, source, sizes, steps, static_cast<size_t>(run));
  return ffi::Error::Success();
}

} // namespace
} // namespace fuse

FUSE_HANDLER(update, "strides")
