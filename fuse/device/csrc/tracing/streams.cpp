#include "tracing/streams.h"

namespace fuse {

namespace {

// A thread's own stream, which others may have when it has ended. Takes no lock: a thread may end
// when the process does.
class Own {
 public:
  ~Own() {
    if (trace != nullptr) {
      trace->state.store(OpenTrace::State::Left, std::memory_order_release);
    }
  }
  OpenTrace* trace = nullptr;
};

thread_local Own own;

} // namespace

constinit thread_local OpenTrace* Streams::current_ = nullptr;

Streams& Streams::global() {
  static auto* streams = new Streams; // outlives every thread
  return *streams;
}

OpenTrace* Streams::make() {
  auto* trace = new OpenTrace;
  trace->id.store(next_id_);
  by_id_.emplace(next_id_++, trace);
  all_.push_back(trace);
  return trace;
}

OpenTrace* Streams::take() {
  for (OpenTrace* trace : all_) {
    if (trace->state.load(std::memory_order_acquire) != OpenTrace::State::Free) {
      continue;
    }
    // Whoever knows the number means the thread that has ended; the default stream is nobody's.
    if (const int64_t id = trace->id.load(); id != 0) {
      by_id_.erase(id);
      trace->id.store(next_id_);
      by_id_.emplace(next_id_++, trace);
    }
    trace->state.store(OpenTrace::State::Used);
    return trace;
  }
  return make();
}

OpenTrace& Streams::begin() {
  std::lock_guard<std::mutex> guard(mutex_);
  if (own.trace == nullptr) {
    own.trace = take();
  }
  current_ = own.trace;
  return *current_;
}

OpenTrace& Streams::find(int64_t id) {
  if (current_ != nullptr && current_->number() == id) {
    return *current_;
  }
  // A backward pass goes to and fro between two, twice a node.
  static thread_local OpenTrace* last = nullptr;
  if (last != nullptr && last->number() == id) {
    return *last;
  }
  {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = by_id_.find(id);
    if (found != by_id_.end()) {
      last = found->second;
      return *last;
    }
  }
  if (own.trace == nullptr) {
    begin();
  }
  return *own.trace;
}

int64_t Streams::exchange(int64_t id) {
  const int64_t before = here().number();
  if (before != id) {
    current_ = &find(id);
  }
  return before;
}

int64_t Streams::next_of_pool() {
  here(); // so that the first stream is a thread's
  std::lock_guard<std::mutex> guard(mutex_);
  int64_t& id = pool_[handed_out_++ % kPool];
  if (id == 0) {
    id = make()->id.load();
  }
  return id;
}

std::vector<OpenTrace*> Streams::all() {
  std::lock_guard<std::mutex> guard(mutex_);
  return all_;
}

} // namespace fuse
