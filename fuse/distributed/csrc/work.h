// What a caller waits for.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <vector>

namespace fuse::distributed {

// Final. Completed by the group's thread once the data has moved. Its future is completed by
// another thread, so that what is chained to it may wait for calls made after this one.
class Work final : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type, uint64_t number, std::vector<at::Tensor> outputs);

  // From the group's thread; `error` is null where all went well.
  void complete(std::exception_ptr error);
  // Waits in steps, between which the main thread's signal handlers may raise.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override {
    return outputs_;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }
  uint64_t getSequencenumber() const override {
    return number_;
  }
  int sourceRank() const override {
    return source_;
  }
  // What a waiting thread does first, as long as it returns that there was something to do.
  void set_helper(std::function<bool()> helper) {
    helper_ = std::move(helper);
  }
  void set_source(int rank) {
    source_ = rank;
  }

 private:
  bool wait_for(std::chrono::milliseconds timeout);

  uint64_t number_;
  std::function<bool()> helper_;
  int source_ = -1; // of what was received
  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Final. Several as one: what a coalescing manager gives.
class Together final : public c10d::Work {
 public:
  Together(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works);
  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

} // namespace fuse::distributed
