// A cut: liveness, the stored plan, its execution, and the next trace.
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "device/signal_hold.h"
#include "recorder/recorder.h"
#include "uncompiled/host_values.h"

namespace fuse {

namespace {

PyRef int_tuple(const std::vector<int32_t>& values) {
  PyRef tuple = PyRef::steal(checked(PyTuple_New(static_cast<Py_ssize_t>(values.size()))));
  for (size_t at = 0; at < values.size(); ++at) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(at), make_int(values[at]).release());
  }
  return tuple;
}

bool contains(const std::vector<int32_t>& outer, const std::vector<int32_t>& inner) {
  return std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

// Waits for a value that a collective makes. That it failed is an error of Python's here, as what
// fails in a plan is: the trace is given up for it.
void settle(const ArrayHandle& value) {
  try {
    value.settle();
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
    throw_python_error();
  }
}

// A failure that is said elsewhere; an interrupt goes on, and the trace stays.
void clear_failure(python_error& error) {
  error.restore();
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
    throw_python_error();
  }
  PyErr_Clear();
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

} // namespace

void Recorder::start_trace() {
  drop_started();
  settle_dead();
  {
    std::lock_guard<std::mutex> guard(Morgue::global().mutex());
    for (Buffer* buffer : open_->owner) {
      if (buffer != nullptr) {
        buffer->let_go(); // from here on it may be deleted where it dies
      }
    }
  }
  open_->serial = ++serials_;
  open_->joins = false;
  if (stats_.nodes > most_nodes_ || crowded_) {
    prune(std::min(most_nodes_, stats_.nodes) / 2);
  }
  open_->cursor = root_.get();
  open_->operations = 0;
  open_->owner.clear();
  open_->aside.clear();
  open_->leaves.clear();
  open_->dynamic.clear();
}

void Recorder::prune(size_t most) {
  crowded_ = false;
  ++epoch_;
  mark_open_traces();
  // A compiled graph marks the last of its calls alone: those before it are in use as well.
  root_->for_each([](TrieNode& node) {
    for (TrieNode* step = node.parent; step != nullptr && step->last_used < node.last_used;
         step = step->parent) {
      step->last_used = node.last_used;
    }
  });
  std::vector<uint64_t> used;
  root_->for_each([&](TrieNode& node) { used.push_back(node.last_used); });
  const auto edge = used.begin() + static_cast<ptrdiff_t>(most);
  std::nth_element(used.begin(), edge, used.end(), std::greater<>());
  stats_.nodes = 0;
  root_->for_each([&, oldest = *edge](TrieNode& node) {
    if (node.forget_before(oldest)) {
      node.index.clear();
      add_to_index(node);
    }
    stats_.nodes += node.children.size();
  });
  ++stats_.prunes;
}

void Recorder::settle_dead() {
  for (Buffer* buffer : Morgue::global().take()) {
    leave_to(nullptr, *buffer);
    delete buffer; // a leaf's array stays alive in the trace
  }
}

std::vector<int32_t> Recorder::live_values() const {
  std::vector<int32_t> live;
  for (size_t value = 0; value < open_->owner.size(); ++value) {
    if (open_->owner[value] != nullptr && open_->owner[value]->pending) {
      live.push_back(static_cast<int32_t>(value));
    }
  }
  return live;
}

std::vector<int32_t> Recorder::donatable_leaves() const {
  std::vector<int32_t> leaves;
  for (const Leaf& leaf : open_->leaves) {
    // Only this trace holds it: it has been overwritten, or its buffer has died.
    if (leaf.array.defined() && leaf.array.use_count() == 1 && !leaf.array->shared()) {
      leaves.push_back(leaf.value);
    }
  }
  return leaves;
}

Plan* Recorder::find_plan(
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

PyRef Recorder::recorded_nodes(TrieNode& node, std::vector<TrieNode*>& path) {
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

Plan* Recorder::make_plan(
    TrieNode& node, std::vector<int32_t> live, std::vector<int32_t> donatable) {
  std::vector<TrieNode*> path;
  PyRef nodes = recorded_nodes(node, path);
  std::vector<int32_t> read;
  for (const Leaf& leaf : open_->leaves) {
    if (leaf.array.defined() && leaf.array->read()) {
      read.push_back(leaf.value);
    }
  }
  PyRef made = call_engine(
      "plan", pack(std::move(nodes), int_tuple(live), int_tuple(donatable), int_tuple(read)));
  PyRef handle = PyRef::borrow(checked(PyTuple_GetItem(made.get(), 0)));
  crowded_ = PyTuple_GetItem(made.get(), 1) == Py_True;
  // The plan says which of the donatable leaves it really consumes.
  PyRef donated = PyRef::steal(checked(PyObject_GetAttrString(handle.get(), "donated")));
  std::vector<int32_t> consumed;
  for (Py_ssize_t at = 0; at < PyTuple_Size(donated.get()); ++at) {
    consumed.push_back(static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(donated.get(), at))));
  }
  PyRef starts = PyRef::steal(checked(PyObject_GetAttrString(handle.get(), "starts")));
  std::vector<Plan::Point> points;
  for (Py_ssize_t at = 0; at < PyTuple_Size(starts.get()); ++at) {
    PyObject* pair = PyTuple_GetItem(starts.get(), at);
    const auto calls = static_cast<size_t>(PyLong_AsLong(PyTuple_GetItem(pair, 0)));
    points.push_back({path[path.size() - calls], PyLong_AsLong(PyTuple_GetItem(pair, 1))});
  }
  node.plans.push_back(
      Plan{std::move(live), std::move(consumed), std::move(handle), std::move(points)});
  return &node.plans.back();
}

PyObject* Recorder::leaf_array(const Leaf& leaf) const {
  settle(*leaf.array);
  if (leaf.array->get() == nullptr) {
    leaf.array->replace(to_backend(*leaf.array, leaf.layout, open_->device).get());
  }
  return leaf.array->get();
}

PyRef Recorder::leaf_arrays() {
  PyRef arrays = PyRef::steal(checked(PyList_New(0)));
  for (const Leaf& leaf : open_->leaves) {
    if (leaf.array.defined()) {
      PyList_Append(arrays.get(), leaf_array(leaf));
    }
  }
  return arrays;
}

PyObject* Recorder::leaf_if_any(const Leaf& leaf) const {
  try {
    return leaf_array(leaf);
  } catch (python_error& error) {
    clear_failure(error);
    return Py_None; // a collective failed, or the device is full: what reads it is lost
  }
}

void Recorder::keep_conversions(PyObject* arrays) {
  Py_ssize_t at = 0;
  for (const Leaf& leaf : open_->leaves) {
    if (leaf.array.defined()) {
      PyObject* array = PyList_GET_ITEM(arrays, at++);
      if (array != leaf.array->get()) {
        leaf.array->replace(array); // converted from another backend's: keep the conversion
      }
    }
  }
}

PyRef Recorder::packed_words() const {
  return PyRef::steal(checked(PyBytes_FromStringAndSize(
      reinterpret_cast<const char*>(open_->dynamic.data()),
      static_cast<Py_ssize_t>(open_->dynamic.size() * sizeof(uint64_t)))));
}

void Recorder::execute(Plan& plan, CutReason reason) {
  const SignalHold hold(!plan.donated.empty()); // else the trace can simply run again
  PyRef started = take_started(plan);
  PyRef arrays = leaf_arrays();
  PyRef results = call_engine(
      "execute",
      pack(
          PyRef::borrow(plan.handle.get()),
          PyRef::borrow(arrays.get()), // the engine may swap items in the list
          packed_words(),
          make_int(static_cast<int64_t>(reason)),
          std::move(started)));
  keep_conversions(arrays.get());
  for (const Leaf& leaf : open_->leaves) {
    if (leaf.array.defined()) {
      leaf.array->set_read();
    }
  }
  adopt(plan, results.get());
  expect(plan);
  if (policy_.setting() != tiering::Setting::Compiled && !plan.ready) {
    PyRef waits = call_engine("waits", pack(PyRef::borrow(plan.handle.get())));
    plan.ready = waits.get() != Py_True;
  }
}

void Recorder::adopt(const Plan& plan, PyObject* arrays) {
  PyRef sequence = PyRef::steal(checked(PySequence_Fast(arrays, "a plan returns a sequence")));
  TORCH_CHECK(
      static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.get())) == plan.live.size(),
      "a plan returned ",
      PySequence_Fast_GET_SIZE(sequence.get()),
      " arrays for ",
      plan.live.size(),
      " live values");
  settle_dead(); // buffers may have died on other threads while the chunk ran
  for (size_t at = 0; at < plan.live.size(); ++at) {
    Buffer* buffer = open_->owner[static_cast<size_t>(plan.live[at])];
    if (buffer == nullptr) {
      continue;
    }
    PyObject* array = PySequence_Fast_GET_ITEM(sequence.get(), static_cast<Py_ssize_t>(at));
    Py_INCREF(array);
    give(*buffer, array);
  }
}

bool Recorder::rescue(std::string& why) {
  if (open_->operations < 2) {
    return false;
  }
  std::vector<TrieNode*> path;
  PyRef nodes = recorded_nodes(*open_->cursor, path);
  PyRef arrays = PyRef::steal(checked(PyList_New(0)));
  for (const Leaf& leaf : open_->leaves) {
    if (leaf.array.defined()) {
      PyList_Append(arrays.get(), leaf_if_any(leaf));
    }
  }
  settle_dead();
  const std::vector<int32_t> live = live_values();
  PyRef answer = call_engine(
      "rescue",
      pack(std::move(nodes), int_tuple(live), std::move(arrays), packed_words(), make_string(why)));
  PyObject* found = PyTuple_GetItem(answer.get(), 0);
  why = PyUnicode_AsUTF8(PyTuple_GetItem(answer.get(), 1));
  bool whole = true;
  for (size_t at = 0; at < live.size(); ++at) {
    Buffer* buffer = open_->owner[static_cast<size_t>(live[at])];
    PyObject* array = PyList_GetItem(found, static_cast<Py_ssize_t>(at));
    if (array == Py_None) {
      whole = false;
    } else if (buffer != nullptr) {
      Py_INCREF(array);
      give(*buffer, array);
    }
  }
  return whole;
}

void Recorder::give(Buffer& buffer, PyObject* array) {
  buffer.array = c10::make_intrusive<ArrayHandle>(array);
  buffer.array->has(buffer.nbytes);
  buffer.pending = false;
}

void Recorder::abandon(const std::string& why) {
  // What existed before the trace, and was not computed, is as it was before it; what it was to
  // make is lost, and says why when it is asked for.
  auto text = std::make_shared<std::string>(why);
  settle_dead();
  for (Leaf& leaf : open_->leaves) {
    if (leaf.buffer != nullptr && leaf.buffer->pending) {
      leaf.buffer->array = leaf.array;
      leaf.buffer->layout = leaf.layout;
      leaf.buffer->pending = false;
    }
  }
  for (Buffer* buffer : open_->owner) {
    if (buffer != nullptr && buffer->pending) {
      buffer->poison = text;
      buffer->pending = false;
    }
  }
}

void Recorder::cut_locked(CutReason reason) {
  if (open_->operations == 0) {
    end_segment(); // else what is cut is a call of one that was recorded
    start_trace();
    return;
  }
  settle_dead();
  std::vector<int32_t> live = live_values();
  Plan* plan = nullptr;
  bool planned = false;
  if (!live.empty()) {
    std::vector<int32_t> donatable = donatable_leaves();
    GilGuard gil;
    drain_releases();
    plan = find_plan(*open_->cursor, live, donatable);
    planned = plan == nullptr;
    try {
      if (planned) {
        widen(open_->cursor->plans, live, donatable);
        plan = make_plan(*open_->cursor, std::move(live), std::move(donatable));
      }
      execute(*plan, reason);
    } catch (python_error& error) {
      error.restore();
      if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
        throw_python_error(); // an interrupt: the trace stays, and the next cut tries again
      }
      fail();
    }
  }
  hand_on_segment(reason, plan, planned);
  ++stats_.traces;
  ++stats_.cuts[static_cast<size_t>(reason)];
  if (reason != CutReason::SizeBound) {
    open_->mark_at = 0; // the stream has ended by itself: there is no endless loop to mark
  }
  start_trace();
}

void Recorder::fail() {
  // GIL held, with the trace's error set in Python.
  python_error failure;
  failure.persist();
  std::string why = failure.what();
  try {
    if (rescue(why)) {
      return;
    }
  } catch (python_error& error) {
    clear_failure(error); // what it tried to save is lost, and the trace's error says so
  }
  abandon(why);
  start_trace();
  throw failure;
}

void Recorder::learn_period() {
  // A long stream without a host read: find the smallest period of its tail and have the
  // next trace marked at a multiple of it, so that cuts fall at the same place for ever.
  std::vector<uint64_t> history;
  for (const TrieNode* step = open_->cursor->parent == nullptr ? nullptr : open_->cursor;
       step->parent != nullptr;
       step = step->parent) {
    history.push_back(step->shape_hash);
  }
  constexpr size_t kChunk = 512; // operations a marked trace should hold at least
  const size_t window = history.size() / 2;
  for (size_t period = 1; period <= window; ++period) {
    const size_t length = std::min(history.size() - period, std::max(2 * period, kChunk));
    if (std::equal(
            history.begin(),
            history.begin() + static_cast<ptrdiff_t>(length),
            history.begin() + static_cast<ptrdiff_t>(period))) {
      open_->mark_at = period * std::max<size_t>(1, (kChunk + period - 1) / period);
      if (open_->mark_at >= limit_) {
        open_->mark_at = period;
      }
      return;
    }
  }
}

} // namespace fuse
