#include "gloo.h"

#include <ATen/ATen.h>

#include "reduce.h"

namespace fuse::distributed {

namespace {

at::Tensor as_bytes(const at::Tensor& flat) {
  return flat.scalar_type() == at::kByte ? flat : flat.view(at::kByte);
}

at::Tensor empty_like_flat(const at::Tensor& flat, int64_t elements) {
  return at::empty({elements}, flat.options());
}

// A part of a larger result has memory of its own: a device value is nobody else's.
at::Tensor part_of(const at::Tensor& flat, int64_t start, int64_t elements) {
  return flat.narrow(0, start, elements).clone();
}

std::vector<int64_t> in_bytes(const std::vector<int64_t>& counts, size_t itemsize) {
  std::vector<int64_t> bytes(counts);
  for (int64_t& count : bytes) {
    count *= static_cast<int64_t>(itemsize);
  }
  return bytes;
}

at::Tensor joined(const std::vector<at::Tensor>& parts) {
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

} // namespace

void GlooTransport::run(Call& call) {
  switch (call.kind) {
    case Kind::AllReduce: return all_reduce(call);
    case Kind::Broadcast: return broadcast(call);
    case Kind::Reduce: return reduce(call);
    case Kind::AllGather: return all_gather(call);
    case Kind::Gather: return gather(call);
    case Kind::Scatter: return scatter(call);
    case Kind::ReduceScatter: return reduce_scatter(call);
    case Kind::AllToAll: return all_to_all(call);
    case Kind::Barrier: return; // the check was one
  }
}

void GlooTransport::all_reduce(Call& call) {
  for (size_t at = 0; at < call.sources.size(); ++at) {
    const at::Tensor flat = prepared(host_of(call.sources[at]), call.reduction);
    at::Tensor result = natively_reduced(flat, call, -1);
    if (!result.defined()) {
      result = reduced(gathered(flat, call).view({ranks(), -1}), call.reduction);
    }
    give(call.targets[at], finished(result, call.reduction, ranks()));
  }
}

void GlooTransport::reduce(Call& call) {
  for (size_t at = 0; at < call.sources.size(); ++at) {
    const at::Tensor flat = prepared(host_of(call.sources[at]), call.reduction);
    at::Tensor result = natively_reduced(flat, call, call.root);
    if (!result.defined()) {
      result = reduced(gathered(flat, call).view({ranks(), -1}), call.reduction);
    }
    if (gloo_->getRank() == call.root) {
      give(call.targets[at], finished(result, call.reduction, ranks()));
    }
  }
}

at::Tensor GlooTransport::natively_reduced(const at::Tensor& flat, const Call& call, int root) {
  const std::optional<c10d::ReduceOp> native = native_reduction(flat.scalar_type(), call.reduction);
  if (!native.has_value() || flat.numel() == 0) {
    return flat.numel() == 0 ? flat.clone() : at::Tensor();
  }
  at::Tensor result = flat.clone();
  std::vector<at::Tensor> tensors{
      result.scalar_type() == at::kBool ? result.view(at::kByte) : result};
  if (root < 0) {
    c10d::AllreduceOptions options;
    options.reduceOp = *native;
    options.timeout = call.timeout;
    gloo_->allreduce(tensors, options)->wait();
  } else {
    c10d::ReduceOptions options;
    options.reduceOp = *native;
    options.rootRank = root;
    options.timeout = call.timeout;
    gloo_->reduce(tensors, options)->wait();
  }
  return result;
}

void GlooTransport::broadcast(Call& call) {
  c10d::BroadcastOptions options;
  options.rootRank = call.root;
  options.timeout = call.timeout;
  for (size_t at = 0; at < call.sources.size(); ++at) {
    const bool root = gloo_->getRank() == call.root;
    const Source& source = call.sources[at];
    at::Tensor flat = root ? host_of(source)
                           : at::empty({source.elements}, at::TensorOptions().dtype(source.dtype));
    std::vector<at::Tensor> tensors{as_bytes(flat)};
    if (flat.numel() != 0) {
      gloo_->broadcast(tensors, options)->wait();
    }
    if (!root) {
      give(call.targets[at], flat);
    }
  }
}

at::Tensor GlooTransport::gathered(const at::Tensor& flat, const Call& call) {
  at::Tensor all = empty_like_flat(flat, flat.numel() * ranks());
  at::Tensor input = as_bytes(flat);
  at::Tensor output = as_bytes(all);
  if (flat.numel() != 0) {
    c10d::AllgatherOptions options;
    options.timeout = call.timeout;
    gloo_->_allgather_base(output, input, options)->wait();
  }
  return all;
}

void GlooTransport::all_gather(Call& call) {
  for (size_t at = 0; at < call.sources.size(); ++at) {
    const at::Tensor flat = host_of(call.sources[at]);
    const at::Tensor all = gathered(flat, call);
    if (call.parts == 1) {
      give(call.targets[at], all);
      continue;
    }
    for (size_t rank = 0; rank < call.parts; ++rank) {
      const auto start = static_cast<int64_t>(rank) * flat.numel();
      give(call.targets[at * call.parts + rank], part_of(all, start, flat.numel()));
    }
  }
}

void GlooTransport::gather(Call& call) {
  const bool root = gloo_->getRank() == call.root;
  const at::Tensor flat = host_of(call.sources[0]);
  std::vector<std::vector<at::Tensor>> outputs;
  std::vector<at::Tensor> results;
  if (root) {
    outputs.emplace_back();
    for (int64_t rank = 0; rank < ranks(); ++rank) {
      results.push_back(empty_like_flat(flat, flat.numel()));
      outputs[0].push_back(as_bytes(results.back()));
    }
  }
  std::vector<at::Tensor> inputs{as_bytes(flat)};
  if (flat.numel() != 0) {
    c10d::GatherOptions options;
    options.rootRank = call.root;
    options.timeout = call.timeout;
    gloo_->gather(outputs, inputs, options)->wait();
  }
  for (size_t rank = 0; rank < results.size(); ++rank) {
    give(call.targets[rank], results[rank]);
  }
}

void GlooTransport::scatter(Call& call) {
  std::vector<std::vector<at::Tensor>> inputs;
  if (gloo_->getRank() == call.root) {
    inputs.emplace_back();
    for (const Source& source : call.sources) {
      inputs[0].push_back(as_bytes(host_of(source)));
    }
  }
  Target& target = call.targets[0];
  at::Tensor flat = at::empty(
      {target.tensor.numel()}, at::TensorOptions().dtype(target.tensor.scalar_type()));
  std::vector<at::Tensor> outputs{as_bytes(flat)};
  if (flat.numel() != 0) {
    c10d::ScatterOptions options;
    options.rootRank = call.root;
    options.timeout = call.timeout;
    gloo_->scatter(outputs, inputs, options)->wait();
  }
  give(target, flat);
}

// Every rank gets its share of all others and reduces it itself: half the bytes of an all_reduce,
// which is what gloo's own is.
void GlooTransport::reduce_scatter(Call& call) {
  for (size_t at = 0; at < call.targets.size(); ++at) {
    std::vector<at::Tensor> parts;
    for (size_t part = 0; part < call.parts; ++part) {
      parts.push_back(host_of(call.sources[at * call.parts + part]));
    }
    const at::Tensor flat = prepared(joined(parts), call.reduction);
    const std::vector<int64_t> share(static_cast<size_t>(ranks()), flat.numel() / ranks());
    const at::Tensor mine = exchanged(flat, share, share, call);
    const at::Tensor result = reduced(mine.view({ranks(), share[0]}), call.reduction);
    give(call.targets[at], finished(result, call.reduction, ranks()));
  }
}

at::Tensor GlooTransport::exchanged(
    const at::Tensor& flat,
    const std::vector<int64_t>& sent,
    const std::vector<int64_t>& received,
    const Call& call) {
  int64_t elements = 0;
  for (int64_t count : received) {
    elements += count;
  }
  at::Tensor result = empty_like_flat(flat, elements);
  at::Tensor input = as_bytes(flat);
  at::Tensor output = as_bytes(result);
  std::vector<int64_t> to = in_bytes(sent, flat.element_size());
  std::vector<int64_t> from = in_bytes(received, flat.element_size());
  c10d::AllToAllOptions options;
  options.timeout = call.timeout;
  gloo_->alltoall_base(output, input, from, to, options)->wait();
  return result;
}

void GlooTransport::all_to_all(Call& call) {
  std::vector<at::Tensor> parts;
  parts.reserve(call.sources.size());
  for (const Source& source : call.sources) {
    parts.push_back(host_of(source));
  }
  const at::Tensor all = exchanged(joined(parts), call.sent, call.received, call);
  if (call.targets.size() == 1) {
    give(call.targets[0], all);
    return;
  }
  int64_t start = 0;
  for (size_t rank = 0; rank < call.targets.size(); ++rank) {
    give(call.targets[rank], part_of(all, start, call.received[rank]));
    start += call.received[rank];
  }
}

} // namespace fuse::distributed
