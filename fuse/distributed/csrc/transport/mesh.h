// The mesh: connections between all ranks of a group, for what they tell each other before a call.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "transport/sockets.h"

namespace fuse::distributed {

// A TCP connection to every other rank, used by one thread at a time and read by nobody but it: a
// message costs no other thread's waking, which is what a small collective consists of. Whoever
// dies closes its ends, so the others know at once.
class Mesh {
 public:
  // Connects to every rank; addresses go through the store. Each listens on the address by which
  // it reaches the store's host, only until all have come, and takes nobody else. Calls `check` now
  // and then meanwhile, which may throw why it is in vain.
  Mesh(
      const c10::intrusive_ptr<c10d::Store>& store,
      int rank,
      int size,
      std::chrono::milliseconds timeout,
      const std::function<void()>& check);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  struct Bytes {
    const char* start = nullptr;
    size_t count = 0;
  };
  struct Space {
    char* start = nullptr;
    size_t count = 0;
  };
  // Sends to each other rank what `out` has for it, and reads from each what `in` has room for;
  // both by rank, this one's left alone. Returns once all has come and all has been handed on.
  // Throws Lost where a connection closes.
  void exchange(
      const std::vector<Bytes>& out,
      const std::vector<Space>& in,
      std::chrono::milliseconds timeout);

 private:
  std::vector<Descriptor> sockets_; // by rank; none for this one
};

} // namespace fuse::distributed
