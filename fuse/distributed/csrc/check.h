// The check before every call: do all ranks of the group mean the same one?
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "call.h"

namespace fuse::distributed {

// One exchange of what each rank is about to do. Begun before the call's values are waited for, so
// that it costs nothing where they take longer.
class Check {
 public:
  Check(c10d::Backend& gloo, const Call& call);
  // Waits for every rank's part; throws with both sides' calls and lines where they differ.
  void finish();

 private:
  std::string mismatch() const;
  std::string text_of(int64_t rank) const;
  uint64_t word(int64_t rank, size_t at) const;

  const Call& call_;
  int rank_;
  int64_t ranks_;
  at::Tensor all_;
  c10::intrusive_ptr<c10d::Work> work_;
};

} // namespace fuse::distributed
