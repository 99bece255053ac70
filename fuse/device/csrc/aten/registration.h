// Registration: which kernel the device has for each operator.
#pragma once

#include <string>
#include <vector>

namespace fuse {

// Gives the device a kernel of every aten overload that PyTorch's CPU computes, and of `names`
// ("add.Tensor"), which are recorded as one call where PyTorch would prefer a composite of its own
// to the catch-all fallback. `others` get their kernels elsewhere.
void register_record_kernels(
    const std::vector<std::string>& names, const std::vector<std::string>& others);

// Gives the device a kernel of each of these overloads, which have one under kComposed: PyTorch's
// for the CPU where the call runs uncompiled, else that one.
void register_whole_kernels(const std::vector<std::string>& names);

// The aten overloads, "add.Tensor", that have a kernel of their own for a dispatch key.
std::vector<std::string> overloads_of(const std::string& key);

} // namespace fuse
