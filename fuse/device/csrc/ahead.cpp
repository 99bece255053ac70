// Starting the first stages of a plan before its trace has ended. A stream that is where it was
// before most likely ends as it did before; its first stages depend on nothing that is still to
// come, consume no leaf, and change nothing that anybody can see. So they are handed on as soon as
// the last call of theirs is recorded, and run while the program goes on recording. If the trace
// then ends otherwise, their results are dropped and the trace is run from its leaves.
#include "recorder.h"

namespace fuse {

void Recorder::start_ahead(TrieNode& node) {
  const Ahead& ahead = *node.ahead;
  const bool more = started_.at != nullptr;
  if (more && started_.handle.get() != ahead.handle.get()) {
    drop_started(); // another plan's stages: this one's first ones have not been started
    return;
  }
  if (!more && !ahead.trusted()) {
    return;
  }
  GilGuard gil;
  PyRef handle = PyRef::borrow(ahead.handle.get());
  PyRef before = more ? std::move(started_.state) : PyRef::borrow(Py_None);
  TrieNode* at = more ? started_.at : &node;
  started_ = {};
  PyRef arrays = leaf_arrays();
  PyRef kept = PyRef::borrow(arrays.get());
  // An interrupt leaves nothing started. A failure is said when the trace is run.
  PyRef state = call_engine(
      "start",
      pack(
          PyRef::borrow(handle.get()),
          std::move(before),
          std::move(arrays),
          packed_words(),
          make_int(ahead.stages)));
  keep_conversions(kept.get());
  if (state.get() != Py_None) {
    started_ = {at, std::move(handle), std::move(state)};
  }
}

PyRef Recorder::take_started(const Plan& plan) {
  if (started_.at == nullptr || started_.handle.get() != plan.handle.get()) {
    return PyRef::borrow(Py_None);
  }
  ++stats_.started_right;
  if (started_.at->ahead != nullptr) {
    ++started_.at->ahead->right;
  }
  PyRef state = std::move(started_.state);
  started_ = {};
  return state;
}

void Recorder::drop_started() {
  if (started_.at != nullptr) {
    ++stats_.started_wrong;
    if (started_.at->ahead != nullptr) {
      ++started_.at->ahead->wrong;
    }
    started_ = {};
  }
}

void Recorder::expect(const Plan& plan) {
  for (const Plan::Point& point : plan.points) {
    auto& ahead = point.node->ahead;
    if (ahead == nullptr) {
      ahead = std::make_unique<Ahead>();
    }
    if (ahead->handle.get() != plan.handle.get()) {
      ahead->handle = PyRef::borrow(plan.handle.get());
    }
    ahead->stages = point.stages;
  }
}

} // namespace fuse
