// Distributions on the host: what the backends' rules draw, of the same words by the same formulas
// (fuse/backends/numpy/rules/random.py). What is not integers may differ by a rounding.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <string>

#include "runtime/generator.h"

namespace fuse {

// What is drawn: numbers of a shape, for a result of a dtype.
struct Draw {
  RandomDraw from;
  at::IntArrayRef sizes;
  at::ScalarType dtype;
};

// Bits of a real floating-point dtype's significand; 0 of what numbers are not drawn in.
int digits_of(at::ScalarType dtype);
// Uniform from `low` to below `high`, of as many digits as the dtype's significand has: float64 or,
// for the other real floating-point dtypes, float32.
at::Tensor uniform(const Draw& draw, double low, double high);
// The same in (0, 1), without its ends.
at::Tensor open_unit(const Draw& draw);
// True with a probability.
at::Tensor below(const RandomDraw& from, at::IntArrayRef sizes, double probability);

// What an operator draws that makes each element of one word, or pair of words; `base` is its name
// without overload, and `numbers` are what its distribution depends on. To be converted to the
// dtype. Undefined for what PyTorch's kernel is to refuse.
at::Tensor draw_elements(
    const std::string& base, const Draw& draw, c10::ArrayRef<c10::IValue> numbers);

} // namespace fuse
