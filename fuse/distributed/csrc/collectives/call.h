// One collective call: what every rank of the group has to agree on, and its tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <device_values.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace fuse::distributed {

// The kinds that all of c10d's forms (lists, one tensor, coalesced) come down to.
enum class Kind : uint8_t {
  AllReduce,
  Broadcast,
  Reduce,
  AllGather,
  Gather,
  Scatter,
  ReduceScatter,
  AllToAll,
  Barrier
};
const char* kind_name(Kind kind);
// What PyTorch's profiler calls it: "tpu_dist:all_reduce".
const char* event_name(Kind kind);

// A tensor that a call reads: its value when the call was made.
struct Source {
  at::Tensor tensor; // on the CPU; undefined for the device's, which are `taken`
  Opaque taken;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  int64_t elements = 0;
};

// A tensor that a call gives a value.
struct Target {
  at::Tensor tensor;
  Opaque promised; // null for one on the CPU
  at::Tensor whole; // what gets the value, where the tensor is a part of a storage
};

// Sources and targets are flat and row-major for whoever carries the call out. Their numbers:
//   AllReduce, Broadcast, Reduce   one of each for each tensor; no target where it keeps its value
//   AllGather                      `parts` targets for each source: one a rank, or one for all
//   Gather                         one source; at the root one target a rank
//   Scatter                        at the root one source a rank; one target
//   ReduceScatter                  `parts` sources for each target: one a rank, or one for all
//   AllToAll                       as many as there are parts: one a rank, or one for all
struct Call {
  Kind kind = Kind::Barrier;
  const char* name = nullptr; // what the user called, where that is not the kind's name
  c10d::ReduceOp reduction;
  int root = -1;
  size_t parts = 1;
  std::vector<Source> sources;
  std::vector<Target> targets;
  // AllToAll: elements for each rank and from each rank.
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  int64_t most = 0; // the largest of all ranks' counts, known once they have been compared
  std::chrono::milliseconds timeout{0};
  uint64_t number = 0; // of the group's calls, from 1
  std::string signature; // what has to be alike on every rank
  std::string text; // the call for people
  bool on_device = false;
};

// What the user called.
inline const char* name_of(const Call& call) {
  return call.name != nullptr ? call.name : kind_name(call.kind);
}
// PyTorch's name of a dtype, without "torch.".
std::string dtype_name(c10::ScalarType dtype);
// The text that names a reduction.
std::string reduction_name(const c10d::ReduceOp& reduction);

} // namespace fuse::distributed
