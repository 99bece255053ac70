// Layouts of values, interned, and what strides say about them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace fuse {

// The dense row-major array that a buffer holds; interned, so that a key stores one number.
struct Layout {
  c10::ScalarType dtype = c10::ScalarType::Byte;
  c10::SmallVector<int64_t, 6> shape;
};

// Process-wide table of layouts. Thread-safe; a reference stays valid for ever.
class LayoutTable {
 public:
  static LayoutTable& global();
  uint32_t intern(c10::ScalarType dtype, c10::IntArrayRef shape);
  const Layout& get(uint32_t id);

 private:
  uint32_t intern_anew(c10::ScalarType dtype, c10::IntArrayRef shape, size_t hash);
  std::mutex mutex_;
  std::vector<std::unique_ptr<Layout>> layouts_;
  std::unordered_multimap<size_t, uint32_t> index_;
};

// The bytes of a value of this layout.
size_t bytes_in(uint32_t layout);

// Sizes in memory order (descending strides) if the view is dense and does not overlap.
bool physical_shape(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::SmallVectorImpl<int64_t>& shape);

// Whether `tensor` sees all bytes of its storage, each once.
bool covers_storage(const at::TensorBase& tensor);

} // namespace fuse
