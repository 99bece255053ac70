#include "collectives/work.h"

#include <algorithm>

#include "transport/gil.h"
#include "transport/signals.h"
#include "transport/threads.h"

namespace fuse::distributed {

namespace {

c10::intrusive_ptr<c10::ivalue::Future> new_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

void settle(
    c10::ivalue::Future& future,
    const std::vector<at::Tensor>& value,
    const std::exception_ptr& error) {
  if (error) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(value));
  }
}

} // namespace

void Completion::complete(const std::exception_ptr& error) {
  if (const auto end = std::exchange(end_, nullptr)) {
    end();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  done_ = true;
  error_ = error;
  if (future_) {
    Threads::global().run([future = future_, value = std::exchange(value_, {}), error] {
      settle(*future, value, error);
    });
  }
  lock.unlock();
  changed_.notify_all();
}

bool Completion::done() {
  std::lock_guard<std::mutex> guard(mutex_);
  return done_;
}

std::exception_ptr Completion::error() {
  std::lock_guard<std::mutex> guard(mutex_);
  return error_;
}

bool Completion::wait_until(std::optional<std::chrono::steady_clock::time_point> deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto step = std::chrono::milliseconds(kBetweenSignals);
  while (!changed_.wait_for(lock, step, [this] { return done_; })) {
    lock.unlock();
    run_signal_handlers();
    lock.lock();
    if (deadline.has_value() && std::chrono::steady_clock::now() > *deadline) {
      return false;
    }
  }
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Completion::future(const std::vector<at::Tensor>& value) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!future_) {
    future_ = new_future();
    if (done_) {
      lock.unlock();
      settle(*future_, value, error_);
    } else {
      value_ = value;
    }
  }
  return future_;
}

Work::Work(
    int rank,
    c10d::OpType type,
    uint64_t number,
    std::vector<at::Tensor> outputs,
    const char* event)
    : c10d::Work(rank, type, event), number_(number), outputs_(std::move(outputs)) {
  completion_->set_end(std::exchange(recordFunctionEndCallback_, nullptr));
}

bool Work::wait(std::chrono::milliseconds timeout) {
  try {
    return wait_for(timeout);
  } catch (const Interrupted& interrupted) {
    throw interrupted.error();
  }
}

bool Work::wait_for(std::chrono::milliseconds timeout) {
  std::optional<std::chrono::steady_clock::time_point> deadline;
  if (timeout != kNoTimeout) {
    deadline = std::chrono::steady_clock::now() + timeout;
  }
  const GilRelease released;
  while (helper_ && !completion_->done() && helper_()) {
  }
  TORCH_CHECK_WITH(
      DistBackendError,
      completion_->wait_until(deadline),
      "wait: call ",
      number_,
      " of the group is not complete after ",
      timeout.count(),
      " ms");
  if (const std::exception_ptr error = completion_->error()) {
    std::rethrow_exception(error);
  }
  finish_here();
  return true;
}

void Work::finish_here() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto after = std::exchange(after_, nullptr);
  lock.unlock();
  if (after) {
    after();
  }
}

bool Work::isCompleted() {
  if (!completion_->done()) {
    return false;
  }
  if (!completion_->error()) {
    const GilRelease released;
    finish_here();
  }
  return true;
}

CoalescedWork::CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isSuccess(); });
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  for (auto& work : works_) {
    work->wait(timeout);
  }
  return true;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> all;
  for (auto& work : works_) {
    for (at::Tensor& tensor : work->result()) {
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  std::vector<at::Tensor> all = result();
  auto future = new_future();
  if (works_.empty()) {
    settle(*future, all, nullptr);
    return future;
  }
  // The group's calls complete in order: the last one's completion is everybody's.
  works_.back()->getFuture()->addCallback(
      [future, all](c10::ivalue::Future& last) { settle(*future, all, last.exception_ptr()); });
  return future;
}

} // namespace fuse::distributed
