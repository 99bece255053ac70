#include "collectives/eager.h"

#include <ATen/ATen.h>

#include <cstring>

#include "collectives/check.h"
#include "collectives/reduce.h"
#include "collectives/values.h"

namespace fuse::distributed {

namespace {

at::Tensor tensor_of(
    const std::string& bytes, size_t start, int64_t elements, c10::ScalarType dtype) {
  at::Tensor flat = at::empty({elements}, at::TensorOptions().dtype(dtype));
  if (elements != 0) {
    std::memcpy(flat.mutable_data_ptr(), bytes.data() + start, flat.nbytes());
  }
  return flat;
}

// The same part of every rank's payload, of shape [ranks, elements].
at::Tensor stacked(
    const std::vector<std::string>& payloads,
    size_t start,
    int64_t elements,
    c10::ScalarType dtype) {
  const auto ranks = static_cast<int64_t>(payloads.size());
  at::Tensor all = at::empty({ranks, elements}, at::TensorOptions().dtype(dtype));
  const size_t bytes = static_cast<size_t>(elements) * all.element_size();
  auto* memory = static_cast<char*>(all.mutable_data_ptr());
  for (const std::string& payload : payloads) {
    if (bytes != 0) {
      std::memcpy(memory, payload.data() + start, bytes);
    }
    memory += bytes;
  }
  return all;
}

at::Tensor reduced_part(
    const Call& call,
    const std::vector<std::string>& payloads,
    size_t start,
    int64_t elements,
    c10::ScalarType dtype) {
  return reduced(
      prepared(stacked(payloads, start, elements, dtype), call.reduction), call.reduction);
}

size_t bytes_of(const Source& source) {
  return static_cast<size_t>(source.elements) * c10::elementSize(source.dtype);
}

} // namespace

bool is_eager(const Call& call, int rank, int size) {
  size_t bytes = 0;
  switch (call.kind) {
    case Kind::Barrier:
    case Kind::AllToAll: // ranks may have different sizes
      return false;
    case Kind::Scatter: bytes = call.targets[0].tensor.nbytes() * static_cast<size_t>(size); break;
    case Kind::Broadcast: // sources are there on every rank, for their sizes
    default:
      for (const Source& source : call.sources) {
        bytes += bytes_of(source);
      }
  }
  // premul_sum's factor is the rank's own, and not among what is agreed on.
  return bytes <= kMostPayload && call.reduction.op_ != c10d::ReduceOp::PREMUL_SUM && rank >= 0;
}

std::string payload_of(const Call& call) {
  std::string payload;
  for (const Source& source : call.sources) {
    const at::Tensor flat = host_of(source);
    payload.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  }
  return payload;
}

void run_eager(Call& call, const std::vector<std::string>& payloads, int rank) {
  const auto root = static_cast<size_t>(std::max(call.root, 0));
  if (call.kind == Kind::Scatter) {
    const at::Tensor& like = call.targets[0].tensor;
    const size_t start = static_cast<size_t>(rank) * like.nbytes();
    give(call.targets[0], tensor_of(payloads[root], start, like.numel(), like.scalar_type()));
    return;
  }
  size_t start = 0;
  size_t target = 0;
  for (const Source& source : call.sources) {
    const int64_t share = source.elements / static_cast<int64_t>(payloads.size());
    switch (call.kind) {
      case Kind::AllReduce:
      case Kind::Reduce:
        if (target < call.targets.size()) {
          give(
              call.targets[target++],
              reduced_part(call, payloads, start, source.elements, source.dtype));
        }
        break;
      case Kind::Broadcast:
        if (target < call.targets.size()) {
          give(
              call.targets[target++],
              tensor_of(payloads[root], start, source.elements, source.dtype));
        }
        break;
      case Kind::AllGather:
      case Kind::Gather:
        if (call.parts == 1 && call.kind == Kind::AllGather) {
          give(
              call.targets[target++],
              stacked(payloads, start, source.elements, source.dtype).view({-1}));
          break;
        }
        for (const std::string& payload : payloads) {
          if (target < call.targets.size()) {
            give(call.targets[target++], tensor_of(payload, start, source.elements, source.dtype));
          }
        }
        break;
      case Kind::ReduceScatter: {
        // A list's parts follow each other: the one of this rank's number is reduced.
        if (call.parts == 1) {
          const size_t own = static_cast<size_t>(rank * share) * c10::elementSize(source.dtype);
          give(
              call.targets[target++],
              reduced_part(call, payloads, start + own, share, source.dtype));
        } else {
          const size_t index = static_cast<size_t>(&source - call.sources.data());
          if (index % call.parts == static_cast<size_t>(rank)) {
            give(
                call.targets[target++],
                reduced_part(call, payloads, start, source.elements, source.dtype));
          }
        }
        break;
      }
      default: TORCH_CHECK(false, kind_name(call.kind), " is never small");
    }
    start += bytes_of(source);
  }
}

} // namespace fuse::distributed
