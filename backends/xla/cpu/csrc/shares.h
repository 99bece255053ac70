#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
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

// Work split into shares that XLA's threads work off, the calling one with them. Nobody waits for
// the others: the handler returns a future, and the thread that ends the last share goes on with
// what needs the result. Where it was another one than the thread that would have waited, two calls
// of three, waking that took 80 us (median of the products of a GPT's training step, two cores).
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

  // `finish` follows the last share, on its thread. Both functions own what they use but for the
  // buffers' memory: the handler's arguments are gone before they end.
  static xla::ffi::Future start(
      xla::ffi::ThreadPool& pool,
      int64_t count,
      std::function<void(int64_t)> body,
      std::function<void()> finish = nullptr) {
    auto shares = std::make_shared<Shares>(count, std::move(body), std::move(finish));
    xla::ffi::Future done(shares->promise_);
    for (int64_t other = 1; other < std::min(count, pool.num_threads()); ++other) {
      pool.Schedule([shares] { shares->work(); });
    }
    shares->work();
    return done;
  }

  Shares(int64_t count, std::function<void(int64_t)> body, std::function<void()> finish)
      : count_(count), body_(std::move(body)), finish_(std::move(finish)) {}

 private:
  void work() {
    for (int64_t share = next_++; share < count_; share = next_++) {
      attempt([&] { body_(share); });
      if (++done_ == count_) {
        complete();
      }
    }
  }

  void complete() {
    if (finish_ != nullptr && !error_.has_value()) {
      attempt(finish_);
    }
    body_ = nullptr; // XLA goes on within the calls below, long after this memory is of use
    finish_ = nullptr;
    if (error_.has_value()) {
      promise_.SetError(xla::ffi::Error::Internal(*error_));
    } else {
      promise_.SetAvailable();
    }
  }

  // Whatever is thrown is kept: a share that did not count would leave the future pending for ever.
  template <typename Function>
  void attempt(const Function& function) {
    try {
      const BareKernels kernels;
      function();
    } catch (const std::exception& error) {
      fail(error.what());
    } catch (...) {
      fail("a kernel threw what is no std::exception");
    }
  }

  void fail(const char* text) {
    std::lock_guard<std::mutex> lock(mutex_);
    error_ = error_.value_or(text); // the first one
  }

  const int64_t count_;
  std::function<void(int64_t)> body_;
  std::function<void()> finish_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> done_{0};
  std::mutex mutex_;
  std::optional<std::string> error_;
  xla::ffi::Promise promise_;
};

// The share's part of the first dimension.
inline at::Tensor rows(const at::Tensor& whole, int64_t share, int64_t shares) {
  return Shares::part(whole, 0, share, shares);
}

// Writes the sum of what the shares made, in their order: the same sum every time. For `finish`.
inline void add_up(const at::Tensor& total, const std::vector<at::Tensor>& parts) {
  total.copy_(parts[0]);
  for (size_t part = 1; part < parts.size(); ++part) {
    total.add_(parts[part]);
  }
}

} // namespace fuse
