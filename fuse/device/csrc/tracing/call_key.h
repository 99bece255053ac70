// Call keys: structure in words, numbers that may vary in scalars.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "runtime/buffer.h"
#include "tracing/shape_cache.h"
#include "tracing/trie_node.h"

namespace fuse {

// A tensor of the device among a call's arguments.
struct Operand {
  const at::Tensor* tensor;
  Buffer* buffer;
  bool first; // met for the first time in this trace
  bool initialised;
  int scalar; // position of its offset among the call's scalars
  uint32_t word; // position of its first word in the call's
};

struct CallKey {
  c10::SmallVector<uint64_t, 128> words;
  c10::SmallVector<ScalarBits, 16> scalars;
  c10::SmallVector<Operand, 16> operands;
  uint64_t shape_hash = 0; // the call without value numbers: what periods are found with
  uint64_t rank_hash = 0; // that without sizes too: what changing shapes are counted by
  uint32_t fresh = 0; // operands that became leaves with this call

  void clear();
  // What shape inference looks at: the call without value numbers, its numbers, and each operand's
  // buffer, for one may be written, and resized.
  ShapeCache::Key for_inference() const;
};

// A number in a 0-d CPU tensor, as the packed array holds it: a double's bits, or an integer.
uint64_t host_bits(const at::Tensor& tensor);

} // namespace fuse
