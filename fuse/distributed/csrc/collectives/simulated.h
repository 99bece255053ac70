// A call of a fake run's group, whose other ranks are there only in name.
#pragma once

#include "collectives/call.h"
#include "collectives/callbacks.h"

namespace fuse::distributed {

// Nothing moves. Targets of the device get arrays of their shape; those of the CPU this rank's own
// elements, as if all ranks had the same and sums were not taken.
void simulate(Call& call, Callbacks& callbacks);

} // namespace fuse::distributed
