// How a call's data gets from rank to rank; which form is used is chosen by platform.
#pragma once

#include <vector>

#include "call.h"

namespace fuse::distributed {

class Transport {
 public:
  virtual ~Transport() = default;
  // Carries the call out, whose agreement has been checked, and gives its targets their values.
  // Called by one thread at a time, without the GIL.
  virtual void run(Call& call) = 0;
};

// A source's elements, flat, in host memory that is not to be written to. Waits for them.
at::Tensor host_of(const Source& source);
// Gives a target its value: flat host memory that nobody writes to any more.
void give(Target& target, const at::Tensor& host);

} // namespace fuse::distributed
