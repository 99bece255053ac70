// The known path: find the call below the cursor, make its outputs, advance.
#include "recorder.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "generator.h"
#include "host.h"
#include "masked_put.h"
#include "prepare.h"

namespace fuse {

namespace {
constexpr size_t kLinearChildren = 8; // beyond this many children a hash index is kept

std::atomic<std::thread::id> lock_owner{};
} // namespace

uint64_t hash_words(c10::ArrayRef<uint64_t> words) {
  uint64_t hash = words.size();
  for (uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull; // Fibonacci hashing; keys are compared whole
    hash ^= hash >> 29;
  }
  return hash;
}

const char* cut_reason_name(CutReason reason) {
  static constexpr const char* names[] = {
      "host_read",
      "synchronize",
      "optimizer_step",
      "repeat_mark",
      "host_fallback",
      "collective",
      "mode_change",
      "size_bound",
      "every_operation",
      "device_change"};
  return names[static_cast<size_t>(reason)];
}

// The recorder's mutex. Never waited for with the GIL held: the holder may need the GIL.
class Recorder::Lock {
 public:
  explicit Lock(Recorder& recorder) : mutex_(recorder.mutex_) {
    TORCH_CHECK(
        lock_owner.load(std::memory_order_relaxed) != std::this_thread::get_id(),
        "an operation on the tpu device was called from inside the recorder "
        "(from a finaliser or a signal handler); move it out of there");
    acquire();
  }
  ~Lock() {
    if (held_) {
      release();
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void release() {
    lock_owner.store(std::thread::id(), std::memory_order_relaxed);
    mutex_.unlock();
    held_ = false;
  }

 private:
  void acquire() {
    if (!mutex_.try_lock()) {
      GilRelease released;
      mutex_.lock();
    }
    lock_owner.store(std::this_thread::get_id(), std::memory_order_relaxed);
    held_ = true;
  }
  std::mutex& mutex_;
  bool held_ = false;
};

Recorder::Recorder() : root_(std::make_unique<TrieNode>()), cursor_(root_.get()) {}

Recorder& Recorder::global() {
  static auto* recorder = new Recorder; // buffers may die after static destruction
  return *recorder;
}

void Recorder::record(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  if (info.indexes && put_by_mask(info, stack)) {
    return;
  }
  prepare(info, stack);
  if (mode() == Mode::Fused && reads_ragged(torch::jit::last(*stack, info.kinds.size()))) {
    // What is computed from a ragged value stays uncompiled, at the speed of PyTorch's CPU
    // kernels: going back and forth would cost a cut for every few operations.
    run_uncompiled(op, info, stack, HostRun::Ragged);
    return;
  }
  if (goes_on_briefly(info, torch::jit::last(*stack, info.kinds.size()))) {
    run_uncompiled(op, info, stack, HostRun::Brief);
    return;
  }
  std::string why;
  HostRun run = HostRun::Fallback;
  {
    Lock lock(*this);
    if (try_record(op, info, stack)) {
      return;
    }
    why = refusal_;
    run = host_run_;
  }
  uncompiled_.fetch_add(run != HostRun::Fallback, std::memory_order_relaxed);
  run_on_host(op, info, stack, why, run);
}

void Recorder::run_uncompiled(
    const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack, HostRun run) {
  uncompiled_.fetch_add(1, std::memory_order_relaxed);
  run_on_host(op, info, stack, "", run);
}

bool Recorder::try_record(
    const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  auto arguments = torch::jit::last(*stack, info.kinds.size());
  const int8_t device = std::max<int8_t>(device_of(arguments).index(), 0);
  if (device != device_) {
    cut_locked(CutReason::DeviceChange);
    device_ = device;
  }
  TrieNode* node = nullptr;
  try {
    encode(info, arguments);
    node = find_child(op, info, arguments);
    host_run_ = runs_uncompiled(node, info, arguments);
    if (host_run_ != HostRun::Fallback) {
      node = nullptr;
    } else if (node == nullptr) {
      node = add_child(op, info, arguments);
    } else {
      ++stats_.known;
    }
  } catch (...) {
    undo_encode();
    throw;
  }
  if (node == nullptr) {
    undo_encode();
    return false;
  }
  bind(*node, op, stack);
  node->last_used = serial_;
  first_ = operations_ == 0 ? node : first_;
  cursor_ = node;
  ++operations_;
  ++stats_.operations;
  if (mark_at_ != 0 && operations_ == mark_at_) {
    node->cut_after = true;
    mark_at_ = 0;
  }
  if (mode() != Mode::Fused) {
    cut_locked(CutReason::EveryOperation);
  } else if (node->cut_after) {
    cut_locked(CutReason::RepeatMark);
  } else if (operations_ >= limit_) {
    learn_period();
    cut_locked(CutReason::SizeBound);
  } else if (node->ahead != nullptr) {
    start_ahead(*node);
  }
  return true;
}

TrieNode* Recorder::find_child(
    const c10::OperatorHandle& op, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  const c10::ArrayRef<uint64_t> words = call_.words;
  c10::SmallVector<TrieNode*, 4> close; // same structure, other numbers
  auto matches = [&](TrieNode& child) {
    if (child.words.size() != words.size() ||
        std::memcmp(child.words.data(), words.data(), words.size() * sizeof(uint64_t)) != 0) {
      return false;
    }
    for (size_t at = 0; at < call_.scalars.size(); ++at) {
      if (!child.scalars[at].admits(call_.scalars[at].bits)) {
        close.push_back(&child);
        return false;
      }
    }
    return true;
  };
  if (cursor_->index.empty()) {
    for (auto& child : cursor_->children) {
      if (matches(*child)) {
        return child.get();
      }
    }
  } else {
    auto range = cursor_->index.equal_range(hash_words(words));
    for (auto it = range.first; it != range.second; ++it) {
      if (matches(*it->second)) {
        return it->second;
      }
    }
  }
  for (TrieNode* child : close) {
    if (generalise(*child, op, info, arguments)) {
      return child;
    }
  }
  return nullptr;
}

HostRun Recorder::runs_uncompiled(
    TrieNode* node, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  const bool ragged =
      node == nullptr ? storms() : (cursor_->capped && among_storms()) || always_ends_ragged(*node);
  if (ragged) {
    return HostRun::Ragged;
  }
  refusal_.clear();
  return node != nullptr && begins_brief(*node, info, arguments) ? HostRun::Brief
                                                                 : HostRun::Fallback;
}

bool Recorder::storms() {
  // A place that has seen many shapes will see more. On the CPU the call then runs through
  // PyTorch's own kernels on the same memory, at their speed, and compiles nothing.
  if (!caps_shapes()) {
    return false;
  }
  // The start of a trace is where unrelated programs begin: it counts for less as one place.
  const uint32_t cap = cursor_->parent == nullptr ? shape_cap_ + shape_cap_ / 2 : shape_cap_;
  auto seen = cursor_->shapes.find(call_.rank_hash);
  if (seen == cursor_->shapes.end() || seen->second.shapes < cap) {
    return false;
  }
  refusal_.clear();
  if (!seen->second.capped) {
    refusal_ =
        "more than " + std::to_string(cap) + " shapes or constants at one place"; // said once
    seen->second.capped = cursor_->capped = true;
  }
  seen->second.meets_unknown();
  return true;
}

bool Recorder::among_storms() {
  if (!caps_shapes()) {
    return false;
  }
  auto seen = cursor_->shapes.find(call_.rank_hash);
  refusal_.clear();
  return seen != cursor_->shapes.end() && seen->second.capped && seen->second.meets_known();
}

bool Recorder::always_ends_ragged(TrieNode& node) {
  // Not what makes memory, which may live long and would keep its readers uncompiled; nor what
  // draws random numbers, which takes an executable anyway.
  if (operations_ != 0 || !caps_shapes() || call_.operands.empty() || !node.writes.empty() ||
      node.random_blocks != 0) {
    return false;
  }
  refusal_.clear();
  return node.ragged_end.rests();
}

void Recorder::add_to_index(TrieNode& parent) {
  if (parent.children.size() < kLinearChildren) {
    return;
  }
  if (parent.index.empty()) {
    for (auto& child : parent.children) {
      parent.index.emplace(hash_words(child->words), child.get());
    }
  } else {
    TrieNode* last = parent.children.back().get();
    parent.index.emplace(hash_words(last->words), last);
  }
}

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

bool Recorder::generalise(
    TrieNode& child,
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments) {
  // A place that has had one value and now sees another becomes dynamic, once.
  std::vector<size_t> places;
  for (size_t at = 0; at < call_.scalars.size(); ++at) {
    ScalarPlace& place = child.scalars[at];
    if (place.admits(call_.scalars[at].bits)) {
      continue;
    }
    if (place.pinned || place.dynamic) {
      return false;
    }
    places.push_back(at);
    if (place.kind != ScalarKind::Offset) {
      // A number that shapes the result (an end of arange) is no value: another program.
      TrieNode probe;
      if (!infer(probe, op, info, arguments) || !same_results(child, probe)) {
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
    if (!found.holds(call_.scalars[at])) {
      return false; // outside what one program can reach: another program
    }
  }
  for (size_t index = 0; index < places.size(); ++index) {
    child.scalars[places[index]].vary(std::move(reaches[index]));
  }
  child.forget_plans();
  return true;
}

at::Tensor Recorder::make_tensor(const NewTensor& spec) {
  c10::Storage storage = make_storage(spec.nbytes, spec.layout, device_);
  Buffer* buffer = Buffer::of(storage);
  buffer->trace = serial_;
  buffer->value = static_cast<int32_t>(owner_.size());
  buffer->leaf = -1;
  buffer->pending = true;
  buffer->tracked = true;
  owner_.push_back(buffer);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(spec.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides);
  return tensor;
}

void Recorder::write_buffer(Buffer* buffer, uint32_t layout) {
  if (owner_[static_cast<size_t>(buffer->value)] == buffer) {
    owner_[static_cast<size_t>(buffer->value)] = nullptr;
  }
  buffer->array.reset(); // a leaf's array lives on in leaves_, for donation
  buffer->value = static_cast<int32_t>(owner_.size());
  buffer->pending = true;
  buffer->layout = layout;
  owner_.push_back(buffer);
}

void Recorder::draw_random(const TrieNode& node, c10::ArrayRef<c10::IValue> arguments) {
  const c10::IValue* chosen = nullptr;
  for (const c10::IValue& value : arguments) {
    if (value.isGenerator()) {
      chosen = &value;
    }
  }
  at::Generator generator = chosen != nullptr ? chosen->toGenerator() : default_generator(device_);
  auto state = draw(generator, node.random_blocks);
  dynamic_.push_back(state.seed);
  dynamic_.push_back(state.offset);
}

void Recorder::bind(TrieNode& node, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  auto arguments = torch::jit::last(*stack, count);
  for (size_t at = 0; at < node.scalars.size(); ++at) {
    if (node.scalars[at].dynamic) {
      dynamic_.push_back(call_.scalars[at].bits);
    }
  }
  if (node.random_blocks != 0) {
    draw_random(node, arguments);
  }
  for (const Resize& resize : node.resizes) {
    const at::Tensor& target = *call_.operands[resize.operand].tensor;
    resize_contiguous(target, resize.sizes);
    target.unsafeGetTensorImpl()->set_sizes_and_strides(resize.sizes, resize.strides);
  }
  c10::SmallVector<at::Tensor, 4> tensors;
  for (const NewTensor& spec : node.tensors) {
    tensors.push_back(make_tensor(spec));
  }
  for (const Write& write : node.writes) {
    write_buffer(call_.operands[write.operand].buffer, write.layout);
  }
  c10::SmallVector<c10::IValue, 4> results;
  for (const Result& result : node.results) {
    switch (result.kind) {
      case Result::Kind::Argument:
        results.push_back(arguments[static_cast<size_t>(result.index)]);
        break;
      case Result::Kind::Constant: results.push_back(result.constant); break;
      case Result::Kind::Undefined: results.emplace_back(at::Tensor()); break;
      case Result::Kind::New:
        results.emplace_back(std::move(tensors[static_cast<size_t>(result.index)]));
        break;
      case Result::Kind::List: {
        c10::List<at::Tensor> list;
        for (int item = 0; item < result.count; ++item) {
          list.push_back(std::move(tensors[static_cast<size_t>(result.index + item)]));
        }
        results.emplace_back(std::move(list));
        break;
      }
    }
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : results) {
    stack->push_back(std::move(result));
  }
}

void Recorder::set_mode(Mode mode) {
  Lock lock(*this);
  cut_locked(CutReason::ModeChange);
  mode_.store(mode);
}

void Recorder::set_most_nodes(size_t nodes) {
  Lock lock(*this);
  most_nodes_ = nodes;
}

void Recorder::set_shape_cap(uint32_t shapes) {
  Lock lock(*this);
  shape_cap_ = shapes;
}

void Recorder::give_up_brief() {
  Lock lock(*this);
  drop_brief();
}

void Recorder::set_brief_calls(size_t calls) {
  Lock lock(*this);
  brief_calls_ = calls;
  end_brief();
}

void Recorder::set_limit(size_t operations) {
  Lock lock(*this);
  limit_ = operations;
}

void Recorder::cut(CutReason reason) {
  Lock lock(*this);
  cut_locked(reason);
}

Array Recorder::materialise(Buffer* buffer, CutReason reason, bool ragged) {
  Lock lock(*this);
  if (buffer->pending) {
    cut_locked(reason, ragged);
  }
  if (buffer->poison) {
    TORCH_CHECK(false, *buffer->poison);
  }
  return buffer->array;
}

void Recorder::assign(Buffer* buffer, Array array, uint32_t layout) {
  Lock lock(*this);
  if (buffer->trace == serial_ && owner_[static_cast<size_t>(buffer->value)] == buffer) {
    owner_[static_cast<size_t>(buffer->value)] = nullptr;
  }
  if (buffer->trace == serial_ && buffer->leaf >= 0) {
    leaves_[static_cast<size_t>(buffer->leaf)].buffer = nullptr;
  }
  buffer->trace = 0;
  buffer->value = -1;
  buffer->leaf = -1;
  buffer->pending = false;
  buffer->poison.reset();
  buffer->array = std::move(array);
  buffer->layout = layout;
}

RecorderStats Recorder::stats() {
  Lock lock(*this);
  stats_.uncompiled = uncompiled_.load(std::memory_order_relaxed);
  return stats_;
}

void Recorder::reset_stats() {
  Lock lock(*this);
  stats_ = RecorderStats{.nodes = stats_.nodes};
  uncompiled_.store(0);
}

void Recorder::forget() {
  Lock lock(*this);
  cut_locked(CutReason::ModeChange);
  root_ = std::make_unique<TrieNode>();
  stats_.nodes = 0;
  start_trace();
}

} // namespace fuse
