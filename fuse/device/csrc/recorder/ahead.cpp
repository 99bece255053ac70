// Starting the first stages of a plan before its trace has ended. A stream that is where it was
// before most likely ends as it did before; its first stages depend on nothing that is still to
// come, consume no leaf, and change nothing that anybody can see. So they are handed on as soon as
// the last call of theirs is recorded, and run while the program goes on recording. If the trace
// then ends otherwise, their results are dropped and the trace is run from its leaves.
#include <torch/csrc/Exceptions.h>

#include "recorder/recorder.h"

namespace fuse {

void Recorder::start_ahead(TrieNode& node) {
  const Ahead& ahead = *node.ahead;
  const bool more = open_->started.at != nullptr;
  if (more && open_->started.handle.get() != ahead.handle.get()) {
    drop_started(); // another plan's stages: this one's first ones have not been started
    return;
  }
  if (!more && !ahead.trusted()) {
    return;
  }
  for (const Leaf& leaf : open_->leaves) {
    if (leaf.array.defined() && !leaf.array->settled()) {
      return; // nobody could record while this waited for a copy or a collective
    }
  }
  GilGuard gil;
  PyRef handle = PyRef::borrow(ahead.handle.get());
  PyRef before = more ? std::move(open_->started.state) : PyRef::borrow(Py_None);
  TrieNode& at = more ? *open_->started.at : node;
  open_->started = {};
  try {
    PyRef arrays = leaf_arrays();
    PyRef state = call_engine(
        "start",
        pack(
            PyRef::borrow(handle.get()),
            std::move(before),
            PyRef::borrow(arrays.get()),
            packed_words(),
            make_int(ahead.stages)));
    keep_conversions(arrays.get());
    if (state.get() != Py_None) {
      open_->started = {&at, std::move(handle), std::move(state)};
    }
  } catch (python_error& error) {
    error.restore();
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
      throw_python_error(); // an interrupt: nothing has been started
    }
    PyErr_Clear(); // counted, and said by the trace's run if that fails as well
    count_in_vain(at);
  }
}

PyRef Recorder::take_started(const Plan& plan) {
  if (open_->started.at == nullptr || open_->started.handle.get() != plan.handle.get()) {
    return PyRef::borrow(Py_None);
  }
  ++stats_.started_early;
  if (open_->started.at->ahead != nullptr) {
    ++open_->started.at->ahead->right;
  }
  PyRef state = std::move(open_->started.state);
  open_->started = {};
  return state;
}

void Recorder::drop_started() {
  if (open_->started.at != nullptr) {
    count_in_vain(*open_->started.at);
    open_->started = {};
  }
}

void Recorder::count_in_vain(TrieNode& at) {
  ++stats_.started_in_vain;
  if (at.ahead != nullptr) {
    ++at.ahead->wrong;
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
