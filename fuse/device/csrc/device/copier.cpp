#include "device/copier.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/ParallelGuard.h>

#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "device/python_bridge.h"
#include "recorder/streams.h"
#include "uncompiled/host_values.h"

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
  } catch (const std::exception& failed) {
    return failed.what();
  }
  return "";
}

} // namespace

Copier& Copier::global() {
  static auto* copier = new Copier; // outlives every thread
  return *copier;
}

Array Copier::copy(at::Tensor target, const at::Tensor& source, bool non_blocking) {
  if (!non_blocking || target.nbytes() < kWorthAThread || !source.is_pinned()) {
    target.copy_(source);
    return c10::make_intrusive<ArrayHandle>(bytes_of(target));
  }
  auto promised = c10::make_intrusive<ArrayHandle>(std::make_shared<Promise>());
  const int64_t stream = Streams::global().here().id.load(std::memory_order_relaxed);
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!running_) {
      std::thread(&Copier::run, this).detach();
      running_ = true;
    }
    waiting_.push_back({std::move(target), source.detach(), promised});
    if (done_ == given_) {
      last_.clear(); // threads that have ended leave their streams' numbers here
    }
    last_[stream] = ++given_;
  }
  changed_.notify_all();
  return promised;
}

void Copier::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !waiting_.empty(); });
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const std::string failed = copied(job.target, job.source);
    job.source.reset();
    if (failed.empty()) {
      job.promised->fulfil(bytes_of(job.target));
    } else {
      job.promised->fail(failed);
    }
    job = {};
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

void Copier::wait_for(uint64_t ticket) {
  const GilRelease released;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this, ticket] { return done_ >= ticket; });
}

void Copier::wait(int64_t stream) {
  uint64_t ticket = 0;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = last_.find(stream);
    if (found == last_.end() || found->second <= done_) {
      return;
    }
    ticket = found->second;
  }
  wait_for(ticket);
}

void Copier::wait_all() {
  uint64_t ticket = 0;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    ticket = given_;
  }
  wait_for(ticket);
}

bool Copier::idle() {
  std::lock_guard<std::mutex> guard(mutex_);
  return done_ == given_;
}

int64_t Copier::started() {
  std::lock_guard<std::mutex> guard(mutex_);
  return static_cast<int64_t>(given_ - counted_from_);
}

void Copier::reset() {
  std::lock_guard<std::mutex> guard(mutex_);
  counted_from_ = given_;
}

} // namespace fuse
