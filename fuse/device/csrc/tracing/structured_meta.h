// PyTorch's structured meta kernels, by which the CPU's kernels size their results too.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string>

namespace fuse {

// The one of an operator; null where it has none, or is not of those that programs are made of. The
// dispatcher does not lead to them: PyTorch puts references in Python over them, which trace
// symbolic sizes as well. A call of a reference costs 50 us and more, the first one 0.3 s for the
// import of sympy; of these one costs 2 us.
const c10::KernelFunction* structured_meta(const std::string& overload);

} // namespace fuse
