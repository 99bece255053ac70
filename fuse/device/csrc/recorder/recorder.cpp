// The known path: find the call below the cursor, make its outputs, advance.
#include "recorder/recorder.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "device/generator.h"
#include "device/prepare.h"
#include "recorder/lock.h"
#include "recorder/masked_put.h"
#include "uncompiled/host.h"

namespace fuse {

namespace {
constexpr size_t kLinearChildren = 8; // beyond this many children a hash index is kept
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
      "device_change",
      "compiled",
      "other_stream"};
  return names[static_cast<size_t>(reason)];
}

Recorder::Recorder() : root_(std::make_unique<TrieNode>()) {}

Recorder& Recorder::global() {
  static auto* recorder = new Recorder; // buffers may die after static destruction
  return *recorder;
}

void Recorder::record(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  check_process();
  if (info.indexes && put_by_mask(info, stack)) {
    return;
  }
  prepare(info, stack);
  const bool uncompiled = may_run_uncompiled() &&
      goes_on_uncompiled(op, info, torch::jit::last(*stack, info.kinds.size()));
  if (uncompiled && run_uncompiled(op, info, stack)) {
    return;
  }
  std::optional<AnyShape> recorded; // where the CPU's kernel met a limit
  if (uncompiled) {
    recorded.emplace();
  }
  for (;;) {
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
    if (run_on_host(op, info, stack, why, run)) {
      return;
    }
    recorded.emplace();
  }
}

bool Recorder::run_uncompiled(
    const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  uncompiled_.fetch_add(1, std::memory_order_relaxed);
  return run_on_host(op, info, stack, "", HostRun::Uncompiled);
}

bool Recorder::try_record(
    const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  auto arguments = torch::jit::last(*stack, info.kinds.size());
  const int8_t device = std::max<int8_t>(device_of(arguments).index(), 0);
  if (device != open_->device) {
    cut_locked(CutReason::DeviceChange);
    open_->device = device;
  }
  if (forgets_soon_.load(std::memory_order_relaxed) && open_->operations == 0 &&
      open_->capture == nullptr) [[unlikely]] {
    forget_locked();
  }
  TrieNode* node = nullptr;
  try {
    encode(info, arguments);
    refusal_.clear();
    host_run_ = begins_uncompiled(op, info) ? HostRun::Uncompiled : HostRun::Fallback;
    if (host_run_ == HostRun::Fallback) {
      node = find_child(op, info, arguments);
      stats_.known += node != nullptr;
      node = node != nullptr ? node : add_child(op, info, arguments);
    }
  } catch (...) {
    undo_encode();
    throw;
  }
  if (node == nullptr) {
    undo_encode();
    break_capture_here("one of its operations runs on the host");
    return false;
  }
  if (!has_room(node->nbytes)) [[unlikely]] {
    undo_encode();
    refuse_memory(node->nbytes, "aten::" + info.name);
  }
  bind(*node, op, stack);
  node->last_used = open_->serial;
  open_->first = open_->operations == 0 ? node : open_->first;
  open_->cursor = node;
  ++open_->operations;
  ++stats_.operations;
  if (open_->capture != nullptr) {
    capture_step(*node);
    return true;
  }
  if (open_->mark_at != 0 && open_->operations == open_->mark_at) {
    node->cut_after = true;
    open_->mark_at = 0;
  }
  if (mode() != Mode::Fused) {
    cut_locked(CutReason::EveryOperation);
  } else if (node->cut_after) {
    cut_locked(CutReason::RepeatMark);
  } else if (open_->operations >= limit_) {
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
  if (open_->cursor->index.empty()) {
    for (auto& child : open_->cursor->children) {
      if (matches(*child)) {
        return child.get();
      }
    }
  } else {
    auto range = open_->cursor->index.equal_range(hash_words(words));
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

at::Tensor Recorder::make_tensor(const NewTensor& spec) {
  c10::Storage storage = make_storage(spec.nbytes, spec.layout, open_->device);
  Buffer* buffer = Buffer::of(storage);
  buffer->stream = open_;
  buffer->trace = open_->serial;
  buffer->value = static_cast<int32_t>(open_->owner.size());
  buffer->leaf = -1;
  buffer->pending = true;
  buffer->held();
  open_->owner.push_back(buffer);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(spec.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides);
  return tensor;
}

void Recorder::write_buffer(Buffer* buffer, uint32_t layout) {
  overwrite_here(*buffer);
  if (open_->owner[static_cast<size_t>(buffer->value)] == buffer) {
    open_->owner[static_cast<size_t>(buffer->value)] = nullptr;
  }
  buffer->array.reset(); // a leaf's array lives on in the trace, for donation
  buffer->value = static_cast<int32_t>(open_->owner.size());
  buffer->pending = true;
  buffer->layout = layout;
  open_->owner.push_back(buffer);
}

void Recorder::draw_random(const TrieNode& node, c10::ArrayRef<c10::IValue> arguments) {
  const c10::IValue* chosen = nullptr;
  for (const c10::IValue& value : arguments) {
    if (value.isGenerator()) {
      chosen = &value;
    }
  }
  at::Generator generator =
      chosen != nullptr ? chosen->toGenerator() : default_generator(open_->device);
  if (generator.unsafeGetGeneratorImpl() !=
      default_generator(open_->device).unsafeGetGeneratorImpl()) {
    break_capture_here("it draws from a generator of its own");
  }
  auto state = draw(generator, node.random_blocks);
  open_->dynamic.push_back(state.seed);
  open_->dynamic.push_back(state.offset);
}

void Recorder::bind(TrieNode& node, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  auto arguments = torch::jit::last(*stack, count);
  for (size_t at = 0; at < node.scalars.size(); ++at) {
    if (node.scalars[at].dynamic) {
      open_->dynamic.push_back(call_.scalars[at].bits);
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
  cut_every(CutReason::ModeChange);
  mode_.store(mode);
}

void Recorder::set_most_nodes(size_t nodes) {
  Lock lock(*this);
  most_nodes_ = nodes;
}

void Recorder::set_limit(size_t operations) {
  Lock lock(*this);
  limit_ = operations;
}

void Recorder::cut(CutReason reason) {
  Lock lock(*this);
  cut_locked(reason);
}

void Recorder::cut_all(CutReason reason) {
  Lock lock(*this);
  cut_every(reason);
}

Position Recorder::position(OpenTrace& stream) {
  Lock lock(*this);
  return {&stream, stream.serial, stream.operations};
}

void Recorder::cut_at(const Position& position, CutReason reason) {
  Lock lock(*this);
  if (position.operations != 0 && position.stream->serial == position.trace) {
    cut_stream(*position.stream, reason);
  }
}

Array Recorder::materialise(Buffer* buffer, CutReason reason) {
  Lock lock(*this);
  break_capture_here("it reads a value on the host");
  if (buffer->pending) {
    try {
      cut_stream(*buffer->stream, reason);
    } catch (const std::exception&) {
      if (buffer->pending || buffer->poison) {
        throw;
      } // else what failed was something else, which says so when it is read
    }
  }
  if (buffer->poison) {
    TORCH_CHECK(false, *buffer->poison);
  }
  return buffer->array;
}

void Recorder::assign(Buffer* buffer, Array array, uint32_t layout) {
  Lock lock(*this);
  break_capture_here("it writes a value on the host");
  leave_to(nullptr, *buffer);
  buffer->trace = 0;
  buffer->value = -1;
  buffer->leaf = -1;
  buffer->poison.reset();
  array->has(buffer->nbytes);
  buffer->array = std::move(array);
  buffer->layout = layout;
  buffer->pending = false;
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

void Recorder::wait_until_left() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kMoment = std::chrono::milliseconds(2);
  constexpr auto kLongest = std::chrono::seconds(5);
  for (const auto begin = Clock::now(); Clock::now() - begin < kLongest;) {
    std::this_thread::sleep_for(kMoment);
    if (mutex_.try_lock()) {
      mutex_.unlock();
      return;
    }
  }
}

void Recorder::forget() {
  Lock lock(*this);
  forget_locked();
}

void Recorder::forget_locked() {
  forgets_soon_.store(false, std::memory_order_relaxed);
  cut_every(CutReason::ModeChange);
  root_ = std::make_unique<TrieNode>();
  ++epoch_;
  stats_.nodes = 0;
  policy_.forget();
  for (OpenTrace* trace : Streams::global().all()) {
    trace->cursor = trace->cursor == nullptr ? nullptr : root_.get();
  }
}

} // namespace fuse
