// The eager protocol: data of small calls goes with the check.
#pragma once

#include <string>
#include <vector>

#include "collectives/call.h"

namespace fuse::distributed {

// Whether a call's data goes with the check: a function of what all ranks agree on.
bool is_eager(const Call& call, int rank, int size);
// What this rank has to tell the others: its sources, one after the other.
std::string payload_of(const Call& call);
// Gives the call's targets their values, from every rank's payload.
void run_eager(Call& call, const std::vector<std::string>& payloads, int rank);

} // namespace fuse::distributed
