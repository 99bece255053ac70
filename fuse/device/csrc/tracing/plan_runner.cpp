#include "tracing/plan_runner.h"

#include <algorithm>
#include <iterator>

#include "runtime/python_bridge.h"
#include "runtime/signal_hold.h"
#include "tracing/shared_buffers.h"
#include "tracing/trace_arrays.h"

namespace fuse {

namespace {

bool contains(const std::vector<int32_t>& outer, const std::vector<int32_t>& inner) {
  return std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

// Plans of one stream before the next one has to serve more than the trace it is made for.
constexpr size_t kMostPlans = 4;

// A program that keeps other values alive every time it comes by must not have a plan for each of
// the combinations: beyond a few, a plan leaves alive whatever any of them did. Beyond twice as
// many it consumes nothing either, for then it is what may be consumed that keeps changing.
void widen(
    const std::vector<Plan>& plans, std::vector<int32_t>& live, std::vector<int32_t>& donatable) {
  if (plans.size() < kMostPlans) {
    return;
  }
  for (const Plan& plan : plans) {
    std::vector<int32_t> either;
    std::set_union(
        live.begin(), live.end(), plan.live.begin(), plan.live.end(), std::back_inserter(either));
    live = std::move(either);
  }
  if (plans.size() >= 2 * kMostPlans) {
    donatable.clear();
  }
}

Plan* find_plan(
    TrieNode& node, const std::vector<int32_t>& live, const std::vector<int32_t>& donatable) {
  Plan* usable = nullptr;
  for (Plan& plan : node.plans) {
    if (plan.live == live && plan.donated == donatable) {
      return &plan;
    }
    // What the garbage collector frees late must not cost a compile.
    if (contains(plan.live, live) && contains(donatable, plan.donated) &&
        (usable == nullptr || plan.live.size() < usable->live.size())) {
      usable = &plan;
    }
  }
  return usable;
}

std::vector<int32_t> donated_by(const PyRef& handle) {
  PyRef donated = PyRef::steal(checked(PyObject_GetAttrString(handle.get(), "donated")));
  std::vector<int32_t> consumed;
  for (Py_ssize_t at = 0; at < PyTuple_Size(donated.get()); ++at) {
    consumed.push_back(static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(donated.get(), at))));
  }
  return consumed;
}

// Where on the trie its stages can start; `path` are the nodes of its calls, the last one first.
std::vector<Plan::Point> points_of(const PyRef& handle, const std::vector<TrieNode*>& path) {
  PyRef starts = PyRef::steal(checked(PyObject_GetAttrString(handle.get(), "starts")));
  std::vector<Plan::Point> points;
  for (Py_ssize_t at = 0; at < PyTuple_Size(starts.get()); ++at) {
    PyObject* pair = PyTuple_GetItem(starts.get(), at);
    const auto calls = static_cast<size_t>(PyLong_AsLong(PyTuple_GetItem(pair, 0)));
    points.push_back({path[path.size() - calls], PyLong_AsLong(PyTuple_GetItem(pair, 1))});
  }
  return points;
}

// The arrays that the plan returned become the values of their buffers.
void adopt(const OpenTrace& trace, const Plan& plan, PyObject* arrays) {
  PyRef sequence = PyRef::steal(checked(PySequence_Fast(arrays, "a plan returns a sequence")));
  TORCH_CHECK(
      static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.get())) == plan.live.size(),
      "a plan returned ",
      PySequence_Fast_GET_SIZE(sequence.get()),
      " arrays for ",
      plan.live.size(),
      " live values");
  free_dead_buffers(); // buffers may have died on other threads while the chunk ran
  for (size_t at = 0; at < plan.live.size(); ++at) {
    Buffer* buffer = trace.owner[static_cast<size_t>(plan.live[at])];
    if (buffer == nullptr) {
      continue;
    }
    PyObject* array = PySequence_Fast_GET_ITEM(sequence.get(), static_cast<Py_ssize_t>(at));
    Py_INCREF(array);
    fulfil(*buffer, array);
  }
}

} // namespace

PyRef recorded_nodes(TrieNode& node, std::vector<TrieNode*>& path) {
  PyRef nodes = PyRef::steal(checked(PyList_New(0)));
  for (TrieNode* step = &node; step->parent != nullptr; step = step->parent) {
    path.push_back(step);
  }
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    std::vector<int32_t> dynamic;
    for (size_t at = 0; at < (*step)->scalars.size(); ++at) {
      if ((*step)->scalars[at].dynamic) {
        dynamic.push_back(static_cast<int32_t>(at));
      }
    }
    PyRef item = pack(PyRef::borrow((*step)->record.get()), int_tuple(dynamic));
    PyList_Append(nodes.get(), item.get());
  }
  return nodes;
}

PlanFor PlanRunner::plan_for(const OpenTrace& trace, std::vector<int32_t> live, bool waits) {
  std::vector<int32_t> donatable = trace.donatable_leaves();
  if (Plan* known = find_plan(*trace.cursor, live, donatable)) {
    return {known, false};
  }
  widen(trace.cursor->plans, live, donatable);
  return {make(trace, std::move(live), donatable, waits), true};
}

Plan* PlanRunner::make(
    const OpenTrace& trace,
    std::vector<int32_t> live,
    const std::vector<int32_t>& donatable,
    bool waits) {
  TrieNode& node = *trace.cursor;
  std::vector<TrieNode*> path;
  PyRef nodes = recorded_nodes(node, path);
  PyRef made = call_engine(
      "plan",
      pack(
          std::move(nodes),
          int_tuple(live),
          int_tuple(donatable),
          int_tuple(trace.read_leaves()),
          PyRef::borrow(waits ? Py_True : Py_False)));
  const PyRef handle = PyRef::borrow(checked(PyTuple_GetItem(made.get(), 0)));
  crowded_ = PyTuple_GetItem(made.get(), 1) == Py_True;
  // The plan says which of the donatable leaves it really consumes.
  node.plans.push_back(
      Plan{
          std::move(live),
          donated_by(handle),
          PyRef::borrow(handle.get()),
          points_of(handle, path)});
  return &node.plans.back();
}

void PlanRunner::execute(OpenTrace& trace, Plan& plan, CutReason reason) {
  const SignalHold hold(!plan.donated.empty()); // else the trace can simply run again
  PyRef started = speculator_.take(trace, plan);
  PyRef arrays = leaf_arrays(trace);
  PyRef results = call_engine(
      "execute",
      pack(
          PyRef::borrow(plan.handle.get()),
          PyRef::borrow(arrays.get()), // the engine may swap items in the list
          packed_words(trace),
          make_string(name_of(reason)),
          std::move(started),
          make_int(trace.device)));
  keep_conversions(trace, arrays.get());
  for (const Leaf& leaf : trace.leaves) {
    if (leaf.array.defined()) {
      leaf.array->set_read();
    }
  }
  adopt(trace, plan, results.get());
  Speculator::expect(plan);
}

void PlanRunner::look_for_executables(Plan& plan) {
  plan.ready = plan.ready || !waits_for_executables(plan.handle);
}

bool waits_for_executables(const PyRef& plan) {
  return call_engine("waits", pack(PyRef::borrow(plan.get()))).get() == Py_True;
}

} // namespace fuse
