// Work: what a caller waits for.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace fuse::distributed {

// Final. The end of a call, as the thread that carries it out knows it. That thread holds no tensor
// any more once it has told of the end: when a tensor dies must not depend on who is faster, for
// which values are alive is part of what a program's executables are found by.
class Completion final {
 public:
  // Called once, when it ends; before anybody has been told.
  void set_end(std::function<void()> end) {
    end_ = std::move(end);
  }
  // `error` is null where all went well.
  void complete(const std::exception_ptr& error);
  bool done();
  std::exception_ptr error();
  // Whether it came before the deadline; lets the main thread's signal handlers raise.
  bool wait_until(std::optional<std::chrono::steady_clock::time_point> deadline);
  // Completed with this value, by a thread of its own, so that what is chained to it may wait for
  // calls made after this one.
  c10::intrusive_ptr<c10::ivalue::Future> future(const std::vector<at::Tensor>& value);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::function<void()> end_;
  std::exception_ptr error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_; // once somebody has asked for it
  std::vector<at::Tensor> value_;
};

// Final.
class Work final : public c10d::Work {
 public:
  // `event`: what the profiler calls it, a text that stays; or null.
  Work(
      int rank,
      c10d::OpType type,
      uint64_t number,
      std::vector<at::Tensor> outputs,
      const char* event = nullptr);

  const std::shared_ptr<Completion>& completion() {
    return completion_;
  }
  // What a waiting thread does first, as long as it returns that there was something to do.
  void set_helper(std::function<bool()> helper) {
    helper_ = std::move(helper);
  }
  // What the first thread that has waited does, or has seen that it is complete.
  void set_after(std::function<void()> after) {
    after_ = std::move(after);
  }
  // Where what is received came from.
  void set_source(std::function<int()> source) {
    source_ = std::move(source);
  }

  bool isCompleted() override;
  bool isSuccess() const override {
    return completion_->done() && !completion_->error();
  }
  std::exception_ptr exception() const override {
    return completion_->error();
  }
  void synchronize() override {
    wait();
  }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override {
    return outputs_;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return completion_->future(outputs_);
  }
  uint64_t getSequencenumber() const override {
    return number_;
  }
  int sourceRank() const override {
    return source_ ? source_() : -1;
  }

 private:
  bool wait_for(std::chrono::milliseconds timeout);
  void finish_here();

  uint64_t number_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<Completion> completion_ = std::make_shared<Completion>();
  std::function<bool()> helper_;
  std::function<void()> after_;
  std::function<int()> source_;
};

// Final. Several as one: what a coalescing manager gives.
class CoalescedWork final : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works);
  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

} // namespace fuse::distributed
