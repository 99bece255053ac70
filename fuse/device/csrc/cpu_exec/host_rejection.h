// Distributions on the host whose draws may be rejected: what the backends' rules draw, of the same
// words by the same formulas (fuse/backends/numpy/rules/rejection.py), but for roundings. Each is
// undefined of what PyTorch's kernel is to refuse.
#pragma once

#include <ATen/core/Tensor.h>

#include "cpu_exec/host_distributions.h"

namespace fuse {

// Gamma of rate one, by its parameter: float64 or float32.
at::Tensor draw_gamma(const Draw& draw, c10::ArrayRef<c10::IValue> numbers);
// Each of its rate: float64.
at::Tensor draw_poisson(const Draw& draw, c10::ArrayRef<c10::IValue> numbers);
// Each of its count and probability: float64.
at::Tensor draw_binomial(const Draw& draw, c10::ArrayRef<c10::IValue> numbers);

} // namespace fuse
