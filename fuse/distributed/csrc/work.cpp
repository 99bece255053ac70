#include "work.h"

#include <algorithm>

#include "released.h"
#include "signals.h"
#include "threads.h"

namespace fuse::distributed {

Work::Work(int rank, c10d::OpType type, uint64_t number, std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type),
      number_(number),
      outputs_(std::move(outputs)),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

void Work::complete(std::exception_ptr error) {
  finish(error);
  Threads::global().run([future = future_, outputs = outputs_, error] {
    if (error) {
      future->setError(error);
    } else {
      future->markCompleted(c10::IValue(outputs));
    }
  });
}

bool Work::wait(std::chrono::milliseconds timeout) {
  try {
    return wait_for(timeout);
  } catch (const Interrupted& interrupted) {
    throw interrupted.error();
  }
}

bool Work::wait_for(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Released released;
  while (helper_ && !isCompleted() && helper_()) {
  }
  std::unique_lock<std::mutex> lock(mutex_);
  while (!cv_.wait_for(
      lock, std::chrono::milliseconds(kBetweenSignals), [this] { return completed_; })) {
    lock.unlock();
    run_signal_handlers();
    lock.lock();
    TORCH_CHECK_WITH(
        DistBackendError,
        timeout == kNoTimeout || std::chrono::steady_clock::now() < deadline,
        "wait: call ",
        number_,
        " of the group is not complete after ",
        timeout.count(),
        " ms");
  }
  if (exception_) {
    std::rethrow_exception(exception_);
  }
  return true;
}

Together::Together(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool Together::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isCompleted(); });
}

bool Together::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isSuccess(); });
}

bool Together::wait(std::chrono::milliseconds timeout) {
  for (auto& work : works_) {
    work->wait(timeout);
  }
  return true;
}

std::vector<at::Tensor> Together::result() {
  std::vector<at::Tensor> all;
  for (auto& work : works_) {
    for (at::Tensor& tensor : work->result()) {
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> Together::getFuture() {
  std::vector<at::Tensor> all = result();
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  if (works_.empty()) {
    future->markCompleted(c10::IValue(all));
    return future;
  }
  // The group's calls complete in order: the last one's completion is everybody's.
  works_.back()->getFuture()->addCallback([future, all](c10::ivalue::Future& last) {
    if (last.hasError()) {
      future->setError(last.exception_ptr());
    } else {
      future->markCompleted(c10::IValue(all));
    }
  });
  return future;
}

} // namespace fuse::distributed
