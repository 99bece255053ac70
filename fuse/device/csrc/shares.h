#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "laid.h"
#include "one_thread.h"
#include "xla/ffi/api/ffi.h"

namespace fuse {

// The CPU kernels and nothing above them, whatever mode the calling thread is in (a small
// executable runs on the thread that asked for it), on this one thread: a team of OpenMP's
// for each of XLA's threads would oversubscribe the cores, and slows down PyTorch's own team.
class BareKernels {
 public:
  BareKernels() = default;
  BareKernels(const BareKernels&) = delete;
  BareKernels& operator=(const BareKernels&) = delete;

 private:
  OneThread one_thread_{true};
  c10::impl::ForceDispatchKeyGuard guard_{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

// A batch split into shares that XLA's threads work off. The caller takes shares too and waits
// only for those that another thread has begun, so that a pool whose threads all wait cannot
// come about.
class Shares {
 public:
  // At most `each` shares a thread and one a part, each worth at least `grain` of `work`.
  static int64_t count(
      xla::ffi::ThreadPool& pool, int64_t parts, double work, double grain, int64_t each = 1) {
    const auto worth = static_cast<int64_t>(work / grain);
    return std::max<int64_t>(1, std::min({each * pool.num_threads(), parts, worth}));
  }

  // The share's part of a tensor that is split along `dimension`.
  static at::Tensor part(
      const at::Tensor& whole, int64_t dimension, int64_t share, int64_t shares) {
    const int64_t first = whole.size(dimension) * share / shares;
    return whole.narrow(dimension, first, whole.size(dimension) * (share + 1) / shares - first);
  }

  static void run(xla::ffi::ThreadPool& pool, int64_t count, std::function<void(int64_t)> body) {
    auto shares = std::make_shared<Shares>(count, std::move(body));
    for (int64_t other = 1; other < std::min(count, pool.num_threads()); ++other) {
      pool.Schedule([shares] { shares->work(); });
    }
    shares->work();
    shares->wait();
  }

  Shares(int64_t count, std::function<void(int64_t)> body)
      : count_(count), body_(std::move(body)) {}

 private:
  void work() {
    for (int64_t share = next_++; share < count_; share = next_++) {
      std::exception_ptr error;
      try {
        BareKernels kernels;
        body_(share);
      } catch (...) {
        error = std::current_exception();
      }
      std::lock_guard<std::mutex> lock(mutex_);
      error_ = error_ != nullptr ? error_ : error;
      if (++done_ == count_) {
        finished_.notify_all();
      }
    }
  }

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [this] { return done_ == count_; });
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

  const int64_t count_;
  const std::function<void(int64_t)> body_;
  std::atomic<int64_t> next_{0};
  std::mutex mutex_;
  std::condition_variable finished_;
  int64_t done_ = 0;
  std::exception_ptr error_;
};

// The share's rows of a buffer: [count * share / shares, count * (share + 1) / shares) of the first
// dimension.
inline at::Tensor rows(const xla::ffi::AnyBuffer& buffer, int64_t share = 0, int64_t shares = 1) {
  return Shares::part(dense(buffer), 0, share, shares);
}

// Writes the sum of what the shares made, in their order: the same sum every time.
inline void add_up(const at::Tensor& total, const std::vector<at::Tensor>& parts) {
  const BareKernels kernels;
  total.copy_(parts[0]);
  for (size_t part = 1; part < parts.size(); ++part) {
    total.add_(parts[part]);
  }
}

} // namespace fuse
