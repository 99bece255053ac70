// Distributions on the host whose draws may be rejected: what the backends' rules draw, of the same
// words by the same formulas (fuse/backends/numpy/rules/rejection.py), but for roundings.
#pragma once

#include <ATen/core/Tensor.h>

#include "cpu_exec/host_distributions.h"

namespace fuse {

// Gamma, of `alpha`, its rate one: float64 or float32, to be converted to the dtype.
at::Tensor draw_gamma(const Draw& draw, const at::Tensor& alpha);
// Float64, each of its rate.
at::Tensor draw_poisson(const Draw& draw, const at::Tensor& rate);
// Float64, each of its count and probability.
at::Tensor draw_binomial(const Draw& draw, const at::Tensor& count, const at::Tensor& probability);

} // namespace fuse
