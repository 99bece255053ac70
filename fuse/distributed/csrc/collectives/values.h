// Values of a call's tensors in host memory, read and given.
#pragma once

#include "collectives/call.h"

namespace fuse::distributed {

// The core's table, known before a device tensor is read.
void read_device_values_by(const DeviceValues& table);
// A source's elements, flat, in host memory that is not to be written to. Waits for them.
at::Tensor host_of(const Source& source);
// Gives a target its value: flat host memory that nobody writes to any more.
void give(Target& target, const at::Tensor& host);

} // namespace fuse::distributed
