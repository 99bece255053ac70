// Philox on the host, without an executable, where numbers are integers or few.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "runtime/generator.h"
#include "tracing/op_info.h"

namespace fuse {

// Draws dropout and truth values with one probability, and few uniform, normal or categorical
// float32 numbers, as the backends' rules do: Philox4x32-10 (Salmon et al., SC 2011; see
// fuse/backends/numpy/philox.py), element i from word i, by its high bits; what is not integers may
// differ by a rounding. `stack` ends with the arguments, on the host, and then with the results.
// Elements drawn, or -1, and nothing done, for any other call.
int64_t draw_on_host(const OpInfo& info, const RandomDraw& from, torch::jit::Stack* stack);

} // namespace fuse
