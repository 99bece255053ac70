// A process, named so that others on its host can see whether it still runs.
#pragma once

#include <string>

namespace fuse::distributed {

// This process: its host and namespace of process numbers, its number and when it was started; one
// word each.
std::string own_process();
// Whether the process of this name has ended; false where that cannot be seen, as on another host.
bool has_ended(const std::string& process);

} // namespace fuse::distributed
