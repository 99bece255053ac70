#include "tracing/speculation.h"

#include <torch/csrc/Exceptions.h>

#include "runtime/python_bridge.h"
#include "tracing/trace_arrays.h"

namespace fuse {

void Speculator::start(OpenTrace& trace, TrieNode& node) {
  const Speculation& ahead = *node.speculation;
  const bool more = trace.started.at != nullptr;
  if (more && trace.started.handle.get() != ahead.handle.get()) {
    drop(trace); // another plan's stages: this one's first ones have not been started
    return;
  }
  if (!more && !ahead.trusted()) {
    return;
  }
  for (const Leaf& leaf : trace.leaves) {
    if (leaf.array.defined() && !leaf.array->settled()) {
      return; // nobody could record while this waited for a copy or a collective
    }
  }
  GilGuard gil;
  PyRef handle = PyRef::borrow(ahead.handle.get());
  PyRef before = more ? std::move(trace.started.state) : PyRef::borrow(Py_None);
  TrieNode& at = more ? *trace.started.at : node;
  trace.started = {};
  try {
    PyRef arrays = leaf_arrays(trace);
    PyRef state = call_engine(
        "start",
        pack(
            PyRef::borrow(handle.get()),
            std::move(before),
            PyRef::borrow(arrays.get()),
            packed_words(trace),
            make_int(ahead.stages),
            make_int(trace.device)));
    keep_conversions(trace, arrays.get());
    if (state.get() != Py_None) {
      trace.started = {&at, std::move(handle), std::move(state)};
    }
  } catch (python_error& error) {
    clear_failure(error); // counted, and said by the trace's run if that fails as well
    count_miss(at);
  }
}

PyRef Speculator::take(OpenTrace& trace, const Plan& plan) {
  if (trace.started.at == nullptr || trace.started.handle.get() != plan.handle.get()) {
    return PyRef::borrow(Py_None);
  }
  ++stats_.started_early;
  if (trace.started.at->speculation != nullptr) {
    ++trace.started.at->speculation->right;
  }
  PyRef state = std::move(trace.started.state);
  trace.started = {};
  return state;
}

void Speculator::drop(OpenTrace& trace) {
  if (trace.started.at != nullptr) {
    count_miss(*trace.started.at);
    trace.started = {};
  }
}

void Speculator::count_miss(TrieNode& at) {
  ++stats_.started_in_vain;
  if (at.speculation != nullptr) {
    ++at.speculation->wrong;
  }
}

void Speculator::expect(const Plan& plan) {
  for (const Plan::Point& point : plan.points) {
    auto& ahead = point.node->speculation;
    if (ahead == nullptr) {
      ahead = std::make_unique<Speculation>();
    }
    if (ahead->handle.get() != plan.handle.get()) {
      ahead->handle = PyRef::borrow(plan.handle.get());
    }
    ahead->stages = point.stages;
  }
}

} // namespace fuse
