// Callbacks: what a group asks of Python (fuse.distributed.group.Callbacks).
#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collectives/call.h"

namespace fuse::distributed {

class Callbacks {
 public:
  explicit Callbacks(py::object object) : object_(std::move(object)) {}
  ~Callbacks();
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;

  // The core's table; starts the device.
  const DeviceValues& values();
  // The user's line that is calling.
  std::string line();
  // Whether device tensors go by JAX's runtime instead of host memory.
  bool uses_runtime();
  // Carries a call out by JAX's runtime.
  void run(Call& call);
  // Another group, of some of the ranks.
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store,
      int rank,
      int size,
      std::chrono::milliseconds timeout,
      const std::string& name,
      const std::vector<int64_t>& ranks);

 private:
  py::object object_;
  const DeviceValues* values_ = nullptr;
};

} // namespace fuse::distributed
