// What a group asks of Python: fuse.distributed.group.Host.
#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "call.h"

namespace fuse::distributed {

class Host {
 public:
  explicit Host(py::object object) : object_(std::move(object)) {}
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // The core's table; starts the device.
  const DeviceValues& values();
  // The user's line that is calling.
  std::string line();
  // gloo, over the ranks of the group; returns once every rank has come.
  c10::intrusive_ptr<c10d::Backend> connect();
  // Whether device tensors go by JAX's runtime instead of gloo.
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
