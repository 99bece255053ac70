// The process group: the backend of torch.distributed for the device.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collectives/runner.h"

namespace fuse::distributed {

// Final. What torch.distributed.split_group copies from group to group.
class GroupOptions final : public c10d::Backend::Options {
 public:
  explicit GroupOptions(std::chrono::milliseconds timeout) : Options("tpu_dist", timeout) {}
};

// Final. Every form of every collective becomes a Call (call.h), which the group's runner carries
// out. A tensor of the device is read as it is when the call is made, and from then on stands for
// the result. Tensors of the CPU are taken too: where the backend is named alone it is theirs.
class Group final : public c10d::Backend {
 public:
  Group(
      const c10::intrusive_ptr<c10d::Store>& store,
      int rank,
      int size,
      std::chrono::milliseconds timeout,
      std::string name,
      std::vector<int64_t> ranks,
      bool simulated,
      py::object callbacks);
  ~Group() override;

  const std::string getBackendName() const override {
    return "tpu_dist";
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return options_;
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    options_->timeout = timeout;
  }
  bool supportsCoalescing() const override {
    return true;
  }
  bool supportsSplitting() const override {
    return true;
  }
  void setSequenceNumberForGroup() override {} // every group counts from one
  uint64_t getSequenceNumberForGroup() override {
    return runner_->calls();
  }
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& options) override;
  void abort() override;
  void shutdown() override;

  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<std::vector<at::Tensor>>;
  using Pending = c10::intrusive_ptr<c10d::Work>;
  Pending broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Pending allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Pending allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Pending reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Pending allgather(
      Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Pending _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Pending allgather_coalesced(
      Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Pending allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Pending gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Pending scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  Pending reduce_scatter(
      Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) override;
  Pending _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Pending reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override;
  Pending alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& received,
      std::vector<int64_t>& sent,
      const c10d::AllToAllOptions& options) override;
  Pending alltoall(
      Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Pending barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool all) override;
  Pending send(Tensors& tensors, int to, int tag) override;
  Pending recv(Tensors& tensors, int from, int tag) override;
  Pending recvAnysource(Tensors& tensors, int tag) override;

 private:
  // Parts of a call in the making.
  Call begin(Kind kind, std::chrono::milliseconds timeout);
  void read(Call& call, const at::Tensor& tensor);
  void write(Call& call, const at::Tensor& tensor);
  void read_and_write(Call& call, const Tensors& inputs, const Tensors& outputs);
  // `async`: the caller does not wait at once.
  Pending issue(
      Call call, c10d::OpType type, const std::string& sizes, Tensors outputs, bool async);
  Pending noted(Pending work);
  Pending gather_all(
      const Tensors& outputs,
      const Tensors& inputs,
      size_t parts,
      const c10d::AllgatherOptions& options);
  at::Tensor gather_rows(
      const at::Tensor& own,
      const std::vector<int64_t>& counts,
      const c10d::AllgatherOptions& options);
  Pending allreduce_sparse(at::Tensor& tensor, const c10d::AllreduceOptions& options);
  Pending gather_uneven(
      const Tensors& outputs, const at::Tensor& input, const c10d::AllgatherOptions& options);
  Pending scatter_uneven(
      const at::Tensor& output, const Tensors& inputs, const c10d::ReduceScatterOptions& options);
  Pending scatter_reduced(
      const Tensors& outputs,
      const Tensors& inputs,
      size_t parts,
      const c10d::ReduceScatterOptions& options);
  Pending all_to_all(const Tensors& outputs, const Tensors& inputs, Call call, bool async);
  Pending receive(Tensors& tensors, int from, int tag);
  std::string message_text(const char* name, const at::Tensor& tensor, const char* way, int peer);

  c10::intrusive_ptr<Options> options_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::string name_;
  std::shared_ptr<Runner> runner_;
  std::mutex mutex_;
  bool coalescing_ = false;
  std::vector<Pending> coalesced_;
};

} // namespace fuse::distributed
