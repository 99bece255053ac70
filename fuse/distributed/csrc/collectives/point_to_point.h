// The point-to-point transport: collectives straight from rank to rank, between host memories.
#pragma once

#include "collectives/call.h"
#include "transport/mesh.h"

namespace fuse::distributed {

// Final. What the ranks' connections are there for already, done on the thread that carries the
// call out. Measured against gloo on the CPU platform: docs/distributed.md. Any dtype, for it moves
// bytes; any reduction, for each rank reduces a share of the elements itself, in the order of the
// ranks, so that all ranks get the same bits.
class PointToPoint final {
 public:
  PointToPoint(Mesh& mesh, int rank, int size) : mesh_(mesh), rank_(rank), size_(size) {}
  // Carries the call out, whose agreement has been checked, and gives its targets their values.
  // Called by one thread at a time, without the GIL.
  void run(Call& call);

 private:
  void all_reduce(Call& call);
  void broadcast(Call& call);
  void all_gather(Call& call);
  void gather(Call& call);
  void scatter(Call& call);
  void reduce_scatter(Call& call);
  void all_to_all(Call& call);

  // This rank's share of the reduction of `parts`, one a rank.
  at::Tensor reduced_share(const std::vector<at::Tensor>& parts, const Call& call);
  // Sends a tensor to each rank and receives one from each: both by rank, undefined for none.
  void exchange(
      const std::vector<at::Tensor>& out, const std::vector<at::Tensor>& in, const Call& call);
  size_t ranks() const {
    return static_cast<size_t>(size_);
  }

  Mesh& mesh_;
  int rank_;
  int size_;
};

} // namespace fuse::distributed
