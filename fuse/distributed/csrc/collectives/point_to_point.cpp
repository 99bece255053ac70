#include "collectives/point_to_point.h"

#include <ATen/ATen.h>

#include <cstring>

#include "collectives/reduce.h"
#include "collectives/values.h"

namespace fuse::distributed {

namespace {

at::Tensor flat_empty(int64_t elements, c10::ScalarType dtype) {
  return at::empty({elements}, at::TensorOptions().dtype(dtype));
}

// Parts of a flat tensor, of these lengths, one after the other.
std::vector<at::Tensor> split(const at::Tensor& flat, const std::vector<int64_t>& lengths) {
  std::vector<at::Tensor> parts;
  int64_t start = 0;
  for (const int64_t length : lengths) {
    parts.push_back(flat.narrow(0, start, length));
    start += length;
  }
  return parts;
}

// As equal as whole elements allow.
std::vector<int64_t> shares_of(int64_t elements, int64_t ranks) {
  std::vector<int64_t> lengths;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    lengths.push_back(elements / ranks + (rank < elements % ranks ? 1 : 0));
  }
  return lengths;
}

std::vector<at::Tensor> hosts_of(const Call& call, size_t first, size_t count) {
  std::vector<at::Tensor> hosts;
  for (size_t at = first; at < first + count; ++at) {
    hosts.push_back(host_of(call.sources[at]));
  }
  return hosts;
}

} // namespace

void PointToPoint::run(Call& call) {
  switch (call.kind) {
    case Kind::AllReduce:
    case Kind::Reduce: return all_reduce(call);
    case Kind::Broadcast: return broadcast(call);
    case Kind::AllGather: return all_gather(call);
    case Kind::Gather: return gather(call);
    case Kind::Scatter: return scatter(call);
    case Kind::ReduceScatter: return reduce_scatter(call);
    case Kind::AllToAll: return all_to_all(call);
    case Kind::Barrier: return; // the check was one
  }
}

void PointToPoint::exchange(
    const std::vector<at::Tensor>& out, const std::vector<at::Tensor>& in, const Call& call) {
  std::vector<Mesh::Bytes> sent(ranks());
  std::vector<Mesh::Space> read(ranks());
  const auto me = static_cast<size_t>(rank_);
  for (size_t rank = 0; rank < ranks(); ++rank) {
    const bool sends = out[rank].defined() && out[rank].numel() != 0;
    const bool reads = in[rank].defined() && in[rank].numel() != 0;
    if (rank == me && sends && reads) {
      std::memcpy(in[rank].mutable_data_ptr(), out[rank].const_data_ptr(), in[rank].nbytes());
    }
    if (rank != me && sends) {
      sent[rank] = {static_cast<const char*>(out[rank].const_data_ptr()), out[rank].nbytes()};
    }
    if (rank != me && reads) {
      read[rank] = {static_cast<char*>(in[rank].mutable_data_ptr()), in[rank].nbytes()};
    }
  }
  mesh_.exchange(sent, read, call.timeout);
}

at::Tensor PointToPoint::reduced_share(const std::vector<at::Tensor>& parts, const Call& call) {
  const at::Tensor& mine = parts[static_cast<size_t>(rank_)];
  const at::Tensor rows = at::empty({static_cast<int64_t>(size_), mine.numel()}, mine.options());
  exchange(parts, rows.unbind(0), call);
  return reduced(rows, call.reduction);
}

// Each rank reduces a share, then all shares go to all, or to the root.
void PointToPoint::all_reduce(Call& call) {
  for (size_t at = 0; at < call.sources.size(); ++at) {
    const at::Tensor flat = prepared(host_of(call.sources[at]), call.reduction);
    const auto lengths = shares_of(flat.numel(), size_);
    const at::Tensor share = reduced_share(split(flat, lengths), call);
    const bool gets = call.root < 0 || call.root == rank_;
    std::vector<at::Tensor> out(ranks(), share);
    std::vector<at::Tensor> in(ranks());
    at::Tensor result;
    if (gets) {
      result = flat_empty(flat.numel(), flat.scalar_type());
      in = split(result, lengths);
    }
    for (size_t rank = 0; rank < ranks() && call.root >= 0; ++rank) {
      if (rank != static_cast<size_t>(call.root)) {
        out[rank] = at::Tensor();
      }
    }
    exchange(out, in, call);
    if (gets) {
      give(call.targets[at], result);
    }
  }
}

void PointToPoint::broadcast(Call& call) {
  for (size_t at = 0; at < call.sources.size(); ++at) {
    const Source& source = call.sources[at];
    std::vector<at::Tensor> out(ranks());
    std::vector<at::Tensor> in(ranks());
    if (call.root == rank_) {
      out.assign(ranks(), host_of(source));
      exchange(out, in, call);
      continue;
    }
    in[static_cast<size_t>(call.root)] = flat_empty(source.elements, source.dtype);
    exchange(out, in, call);
    give(call.targets[at], in[static_cast<size_t>(call.root)]);
  }
}

void PointToPoint::all_gather(Call& call) {
  for (size_t at = 0; at < call.sources.size(); ++at) {
    const at::Tensor flat = host_of(call.sources[at]);
    const std::vector<at::Tensor> out(ranks(), flat);
    std::vector<at::Tensor> in;
    if (call.parts == 1) {
      const at::Tensor all = flat_empty(flat.numel() * size_, flat.scalar_type());
      exchange(out, split(all, std::vector<int64_t>(ranks(), flat.numel())), call);
      give(call.targets[at], all);
      continue;
    }
    for (size_t rank = 0; rank < ranks(); ++rank) {
      in.push_back(flat_empty(flat.numel(), flat.scalar_type()));
    }
    exchange(out, in, call);
    for (size_t rank = 0; rank < ranks(); ++rank) {
      give(call.targets[at * ranks() + rank], in[rank]);
    }
  }
}

void PointToPoint::gather(Call& call) {
  const at::Tensor flat = host_of(call.sources[0]);
  std::vector<at::Tensor> out(ranks());
  std::vector<at::Tensor> in(ranks());
  out[static_cast<size_t>(call.root)] = flat;
  if (call.root == rank_) {
    for (at::Tensor& part : in) {
      part = flat_empty(flat.numel(), flat.scalar_type());
    }
  }
  exchange(out, in, call);
  for (size_t rank = 0; rank < call.targets.size(); ++rank) {
    give(call.targets[rank], in[rank]);
  }
}

void PointToPoint::scatter(Call& call) {
  const at::Tensor& like = call.targets[0].tensor;
  std::vector<at::Tensor> out(ranks());
  std::vector<at::Tensor> in(ranks());
  if (call.root == rank_) {
    out = hosts_of(call, 0, ranks());
  }
  in[static_cast<size_t>(call.root)] = flat_empty(like.numel(), like.scalar_type());
  exchange(out, in, call);
  give(call.targets[0], in[static_cast<size_t>(call.root)]);
}

void PointToPoint::reduce_scatter(Call& call) {
  for (size_t at = 0; at < call.targets.size(); ++at) {
    std::vector<at::Tensor> parts = hosts_of(call, at * call.parts, call.parts);
    for (at::Tensor& part : parts) {
      part = prepared(part, call.reduction);
    }
    if (parts.size() != ranks()) {
      parts = split(parts[0], std::vector<int64_t>(ranks(), parts[0].numel() / size_));
    }
    give(call.targets[at], reduced_share(parts, call));
  }
}

void PointToPoint::all_to_all(Call& call) {
  std::vector<at::Tensor> out = hosts_of(call, 0, call.sources.size());
  const auto dtype = out[0].scalar_type();
  if (out.size() != ranks()) {
    out = split(out[0], call.sent);
  }
  if (call.targets.size() == 1) {
    int64_t elements = 0;
    for (const int64_t length : call.received) {
      elements += length;
    }
    const at::Tensor all = flat_empty(elements, dtype);
    exchange(out, split(all, call.received), call);
    give(call.targets[0], all);
    return;
  }
  std::vector<at::Tensor> in;
  for (const int64_t length : call.received) {
    in.push_back(flat_empty(length, dtype));
  }
  exchange(out, in, call);
  for (size_t rank = 0; rank < ranks(); ++rank) {
    give(call.targets[rank], in[rank]);
  }
}

} // namespace fuse::distributed
