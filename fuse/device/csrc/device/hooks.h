// Accelerator hooks: the device as PyTorch's context knows it.
#pragma once

namespace fuse {

// Registers the hooks, once, and says how many devices there are.
void register_hooks(int count);

} // namespace fuse
