// The exchange table: the core's values for other libraries.
#pragma once

#include <device_values.h>

namespace fuse {

const DeviceValues& device_values();

} // namespace fuse
