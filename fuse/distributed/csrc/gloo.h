// Collectives through gloo, on host memory.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "transport.h"

namespace fuse::distributed {

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(c10::intrusive_ptr<c10d::Backend> gloo) : gloo_(std::move(gloo)) {}
  void run(Call& call) override;

 private:
  void all_reduce(Call& call);
  void broadcast(Call& call);
  void reduce(Call& call);
  void all_gather(Call& call);
  void gather(Call& call);
  void scatter(Call& call);
  void reduce_scatter(Call& call);
  void all_to_all(Call& call);

  // Every rank's elements, one rank after the other, flat.
  at::Tensor gathered(const at::Tensor& flat, const Call& call);
  // The reduction of every rank's elements; null where gloo has none for this dtype.
  at::Tensor natively_reduced(const at::Tensor& flat, const Call& call, int root);
  at::Tensor exchanged(
      const at::Tensor& flat,
      const std::vector<int64_t>& sent,
      const std::vector<int64_t>& received,
      const Call& call);
  int64_t ranks() const {
    return gloo_->getSize();
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
};

} // namespace fuse::distributed
