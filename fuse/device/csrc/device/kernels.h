// Registration of the recorder as the device's kernel.
#pragma once

#include <string>
#include <vector>

namespace fuse {

// Makes the recorder the device's kernel of these aten overloads ("add.Tensor"). Needed where
// PyTorch would prefer a composite kernel of its own to the catch-all fallback.
void register_record_kernels(
    const std::vector<std::string>& names, const std::vector<std::string>& others);

} // namespace fuse
