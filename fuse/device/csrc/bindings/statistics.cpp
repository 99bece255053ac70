#include "bindings/statistics.h"

#include <torch/csrc/Exceptions.h>

#include "runtime/copier.h"
#include "runtime/memory.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

namespace py = pybind11;

py::dict dict_of(const TierReport& one) {
  py::dict item;
  item["kind"] = one.kind;
  item["operator"] = one.name;
  item["tier"] = one.compiled ? "compiled" : "uncompiled";
  item["segments"] = py::make_tuple(one.segments[0], one.segments[1]);
  item["measured_ns"] = py::make_tuple(one.measured[0], one.measured[1]);
  item["trials"] = one.trials;
  item["entries"] = py::make_tuple(one.entries[0], one.entries[1], one.entries[2]);
  item["returning"] = one.returning;
  item["tried"] = one.tried;
  item["returns"] = one.returns;
  item["spent_ns"] = one.spent;
  item["price_ns"] = one.price;
  return item;
}

py::list tiers() {
  py::list list;
  for (const TierReport& one : Recorder::global().tiers()) {
    list.append(dict_of(one));
  }
  return list;
}

py::list watch(int watch) {
  py::list list;
  for (RanSegment& one : Recorder::global().watch(static_cast<tiering::Watch>(watch))) {
    py::object plan = one.plan.get() == nullptr
        ? py::none()
        : py::reinterpret_steal<py::object>(one.plan.release());
    list.append(py::make_tuple(one.kind, one.calls, one.took, std::move(plan)));
  }
  return list;
}

py::dict stats() {
  const RecorderStats stats = Recorder::global().stats();
  py::dict cuts;
  for (size_t at = 0; at < kCutReasons; ++at) {
    if (stats.cuts[at] != 0) {
      cuts[kCutReasonNames[at]] = stats.cuts[at];
    }
  }
  py::dict found;
  found["operations"] = stats.operations;
  found["known_operations"] = stats.known;
  found["traces"] = stats.traces;
  found["uncompiled_operations"] = stats.uncompiled;
  found["uncompiled_segments"] = stats.uncompiled_segments;
  found["known_calls"] = stats.nodes;
  found["prunes"] = stats.prunes;
  found["started_early"] = stats.started_early;
  found["started_in_vain"] = stats.started_in_vain;
  found["streams"] = Streams::global().all().size();
  found["copies_beside"] = Copier::global().started();
  found["cuts"] = std::move(cuts);
  return found;
}

void reset_stats() {
  Recorder::global().reset_stats();
  Copier::global().reset();
}

py::tuple memory() {
  const MemoryStats stats = memory_stats();
  return py::make_tuple(stats.bytes.current, stats.bytes.peak);
}

} // namespace

void add_statistics(py::module_& module) {
  using torch::wrap_pybind_function;
  module.def("stats", wrap_pybind_function(stats), "Counters of the recorder.");
  module.def("reset_stats", wrap_pybind_function(reset_stats), "Set the counters to zero.");
  module.def(
      "tiers", wrap_pybind_function(tiers), "What the policy of tiers knows, a dictionary a kind.");
  module.def(
      "watch",
      wrap_pybind_function(watch),
      "Whether somebody looks on: 0 no, 1 and all is recorded, 2 as it is; returns what ran.");
  module.def("memory", memory, "Bytes allocated, and their peak.");
}

} // namespace fuse
