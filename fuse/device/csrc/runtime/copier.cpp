#include "runtime/copier.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "runtime/host_memory.h"
#include "runtime/pinned.h"
#include "runtime/python_bridge.h"

namespace fuse {

namespace {

// What takes longer to copy than to wake a thread for: some 50 us.
constexpr size_t kWorthAThread = 1 << 19;

// Copies on this thread alone: a team of OpenMP's would go on spinning beside the device's own.
// Says what went wrong, if anything did.
std::string copied(at::Tensor& target, const at::Tensor& source) {
  try {
    const at::AutoDispatchBelowADInplaceOrView plain;
    const c10::ParallelGuard alone(true);
    target.copy_(source);
  } catch (const c10::Error& failed) {
    return failed.what_without_backtrace();
  } catch (const std::exception& failed) {
    return failed.what();
  }
  return "";
}

bool is_plain(c10::ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/true) ||
      (c10::isFloatingType(type) && type != c10::ScalarType::Float4_e2m1fn_x2);
}

// Whether a conversion neither fails nor warns, which is the call's to do.
bool converts(c10::ScalarType from, c10::ScalarType to) {
  return from == to || (is_plain(from) && is_plain(to));
}

// The same elements as a tensor over pinned memory, which is kept; none for other memory.
at::Tensor kept(const at::Tensor& source) {
  const void* memory = source.storage().data();
  if (!PinnedAllocator::global().keep(memory)) {
    return {};
  }
  return at::from_blob(
      const_cast<void*>(source.const_data_ptr()),
      source.sizes(),
      source.strides(),
      [memory](void*) { PinnedAllocator::global().let_go(memory); },
      source.options());
}

} // namespace

Copier& Copier::global() {
  static auto* copier = new Copier; // outlives every thread
  return *copier;
}

Array Copier::copy(at::Tensor target, const at::Tensor& source, bool non_blocking, int64_t stream) {
  if (non_blocking && target.nbytes() >= kWorthAThread &&
      converts(source.scalar_type(), target.scalar_type())) {
    if (at::Tensor memory = kept(source); memory.defined()) {
      auto promise = std::make_shared<Promise>();
      auto value = c10::make_intrusive<ArrayHandle>(bytes_of(target), promise);
      give({std::move(target), std::move(memory), std::move(promise)}, stream);
      return value;
    }
  }
  if (!non_blocking) {
    wait_for_stream(stream);
  }
  target.copy_(source);
  return c10::make_intrusive<ArrayHandle>(bytes_of(target));
}

void Copier::give(Job job, int64_t stream) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!running_) {
      std::thread(&Copier::run, this).detach();
      running_ = true;
    }
    if (idle()) {
      last_.clear(); // threads that have ended leave their streams' numbers here
    }
    waiting_.push_back(std::move(job));
    last_[stream] = ++given_;
  }
  changed_.notify_all();
}

void Copier::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !waiting_.empty(); });
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    std::string failed = copied(job.target, job.source);
    job.source.reset();
    job.promise->settle(std::move(failed));
    job = {};
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

Copier::Ticket Copier::last_of(int64_t stream) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = last_.find(stream);
  return found == last_.end() ? 0 : found->second;
}

void Copier::follow(int64_t stream, Ticket ticket) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (ticket > done_) {
    Ticket& last = last_[stream];
    last = std::max(last, ticket);
  }
}

void Copier::wait(Ticket ticket) {
  if (ticket <= done_) {
    return;
  }
  const GilRelease released;
  std::unique_lock<std::mutex> lock(mutex_);
  wait_with_signals(changed_, lock, [this, ticket] { return done_ >= ticket; });
}

void Copier::wait_for_all() {
  wait(given_);
}

} // namespace fuse
