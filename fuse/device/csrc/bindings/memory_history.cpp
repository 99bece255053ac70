#include "bindings/memory_history.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <vector>

#include "runtime/memory_history.h"
#include "runtime/pinned.h"

namespace fuse {

namespace {

namespace py = pybind11;

// Stacks as lists of PyTorch's dictionaries, all of a snapshot read at once. (PyTorch's own
// py_symbolize does so, but its header includes a library that wheels do not bring.)
class Stacks {
 public:
  void add(const Stack& stack) {
    if (stack != nullptr) {
      stacks_.push_back(torch::getCapturedTracebackFromContext(stack));
    }
  }
  void read() {
    read_ = torch::symbolize(stacks_);
    for (const torch::unwind::Frame& frame : read_.all_frames) {
      py::dict shown;
      shown["filename"] = frame.filename;
      shown["line"] = frame.lineno;
      shown["name"] = frame.funcname;
      frames_.push_back(std::move(shown));
    }
  }
  // In the order in which they were added.
  py::list next(const Stack& stack) {
    py::list found;
    if (stack != nullptr) {
      for (const uint64_t frame : read_.tracebacks[at_]) {
        found.append(frames_[frame]);
      }
      ++at_;
    }
    return found;
  }

 private:
  std::vector<torch::CapturedTraceback*> stacks_;
  torch::SymbolizedTracebacks read_;
  std::vector<py::dict> frames_;
  size_t at_ = 0;
};

py::tuple memory_history() {
  const MemorySnapshot snapshot = MemoryHistory::global().snapshot();
  Stacks stacks;
  for (const LiveStorage& storage : snapshot.storages) {
    stacks.add(storage.stack);
  }
  for (const MemoryEvent& event : snapshot.events) {
    stacks.add(event.stack);
  }
  stacks.read();
  py::list storages;
  for (const LiveStorage& storage : snapshot.storages) {
    storages.append(
        py::make_tuple(
            storage.address, storage.nbytes, storage.device, stacks.next(storage.stack)));
  }
  py::list events;
  for (const MemoryEvent& event : snapshot.events) {
    events.append(
        py::make_tuple(
            event.action,
            event.address,
            event.nbytes,
            event.device,
            event.microseconds,
            stacks.next(event.stack)));
  }
  return py::make_tuple(std::move(storages), std::move(events));
}

void keep_memory_history(
    bool storages,
    bool events,
    bool stacks,
    bool stacks_of_allocations,
    bool stacks_of_frees,
    size_t most,
    bool forget) {
  MemoryHistory::global().keep(
      {storages, events, stacks, stacks_of_allocations, stacks_of_frees, most}, forget);
}

template <typename Stat>
py::dict dict_of(const Stat& stat) {
  py::dict found;
  found["current"] = stat.current;
  found["peak"] = stat.peak;
  found["allocated"] = stat.allocated;
  found["freed"] = stat.freed;
  return found;
}

py::dict host_memory_stats() {
  const at::HostStats stats = PinnedAllocator::global().get_stats();
  py::dict found;
  found["allocations"] = dict_of(stats.allocations);
  found["allocated_bytes"] = dict_of(stats.allocated_bytes);
  found["active_requests"] = dict_of(stats.active_requests);
  found["active_bytes"] = dict_of(stats.active_bytes);
  found["num_host_alloc"] = stats.num_host_alloc;
  found["num_host_free"] = stats.num_host_free;
  return found;
}

} // namespace

void add_memory_history(py::module_& module) {
  using torch::wrap_pybind_function;
  module.def(
      "keep_memory_history",
      wrap_pybind_function(keep_memory_history),
      "What is kept: storages, events, stacks of the live, of allocations, of frees, how many "
      "events; and whether those so far are forgotten.");
  module.def(
      "memory_history",
      wrap_pybind_function(memory_history),
      "Live storages (address, bytes, device, frames) and events (action, address, bytes, device, "
      "microseconds, frames).");
  module.def(
      "host_memory_stats",
      wrap_pybind_function(host_memory_stats),
      "Counts and bytes of pinned memory.");
  module.def(
      "reset_host_memory",
      [](bool peaks) {
        PinnedAllocator& pinned = PinnedAllocator::global();
        peaks ? pinned.reset_peak_stats() : pinned.reset_accumulated_stats();
      },
      "Start the peaks of pinned memory, or its totals, anew.");
}

} // namespace fuse
