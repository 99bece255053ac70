#include "tracing/dynamic_scalars.h"

#include "runtime/python_bridge.h"
#include "tracing/shared_buffers.h"

namespace fuse {

namespace {

bool same_results(const TrieNode& one, const TrieNode& other) {
  if (one.tensors.size() != other.tensors.size() || one.resizes.size() != other.resizes.size()) {
    return false;
  }
  for (size_t at = 0; at < one.tensors.size(); ++at) {
    const NewTensor &a = one.tensors[at], &b = other.tensors[at];
    if (a.sizes != b.sizes || a.strides != b.strides || a.dtype != b.dtype) {
      return false;
    }
  }
  for (size_t at = 0; at < one.resizes.size(); ++at) {
    if (one.resizes[at].sizes != other.resizes[at].sizes) {
      return false;
    }
  }
  return true;
}

} // namespace

bool generalise(
    TrieNode& child, const CallKey& key, const BoxedCall& call, ShapeInference& inference) {
  // A place that has had one value and now sees another becomes dynamic, once.
  std::vector<size_t> places;
  for (size_t at = 0; at < key.scalars.size(); ++at) {
    ScalarPlace& place = child.scalars[at];
    if (place.admits(key.scalars[at].bits)) {
      continue;
    }
    if (place.pinned || place.dynamic) {
      return false;
    }
    places.push_back(at);
    if (place.kind != ScalarKind::Offset) {
      // A number that shapes the result (an end of arange) is no value: another program.
      TrieNode probe;
      if (inference.infer(probe, key, call) || !same_results(child, probe)) {
        return false;
      }
    }
  }
  GilGuard gil;
  std::vector<Reach> reaches;
  for (size_t at : places) {
    PyRef answer = call_engine(
        "generalise", pack(PyRef::borrow(child.record.get()), make_int(static_cast<int64_t>(at))));
    if (answer.get() == Py_None) {
      child.scalars[at].pinned = true;
      return false;
    }
    const Reach& found = reaches.emplace_back(answer.get());
    if (PyErr_Occurred() != nullptr) {
      throw_python_error();
    }
    if (!found.holds(key.scalars[at])) {
      return false; // outside what one program can reach: another program
    }
  }
  for (size_t index = 0; index < places.size(); ++index) {
    vary_in_open_traces(child, places[index]);
    child.scalars[places[index]].vary(std::move(reaches[index]));
  }
  child.forget_plans();
  return true;
}

} // namespace fuse
