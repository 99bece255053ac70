// A message from one rank of a group to another one.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "transport/within.h"

namespace fuse::distributed {

// Why a message does not arrive.
struct Failure {
  std::string what;
  int rank = -1; // who is to blame; none where that is nobody's
  bool lost = false; // whether its connection has closed
};

// One message, as its sender or its receiver has it.
struct Message {
  int peer = -1; // to whom or from whom; -1: from anybody
  int tag = 0;
  at::Tensor bytes; // flat and contiguous, on the CPU; a receiver's is written to
  Clock::time_point deadline;
  // Called once, with who sent it where that was received.
  std::function<void(const std::optional<Failure>&, int from)> end;
};

} // namespace fuse::distributed
