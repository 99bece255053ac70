// Permutations on the host: the order of random keys.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

#include "runtime/generator.h"

namespace fuse {

constexpr int64_t kLargestPermutation = std::numeric_limits<uint32_t>::max();

// The positions of `count` keys of 64 bits, in the order of the keys; of equal ones in their own.
at::Tensor permutation(const RandomDraw& from, int64_t count);

} // namespace fuse
