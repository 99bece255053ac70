// The collectives of a group: each form of each becomes a call.
#include <algorithm>

#include "process_group/arguments.h"
#include "process_group/group.h"

namespace fuse::distributed {

Group::Pending Group::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce: no tensors");
  if (tensors.size() == 1 && tensors[0].layout() != c10::kStrided) {
    return allreduce_sparse(tensors[0], options);
  }
  Call call = begin(Kind::AllReduce, options.timeout);
  call.reduction = options.reduceOp;
  read_and_write(call, tensors, tensors);
  const auto type =
      tensors.size() == 1 ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED;
  return issue(std::move(call), type, texts_of(tensors), tensors, options.asyncOp);
}

Group::Pending Group::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

Group::Pending Group::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  check_one(tensors, "broadcast");
  Call call = begin(Kind::Broadcast, options.timeout);
  call.root = static_cast<int>(options.rootRank);
  read(call, tensors[0]);
  if (rank_ != call.root) {
    write(call, tensors[0]);
  }
  return issue(
      std::move(call), c10d::OpType::BROADCAST, texts_of(tensors), tensors, options.asyncOp);
}

Group::Pending Group::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  check_one(tensors, "reduce");
  Call call = begin(Kind::Reduce, options.timeout);
  call.root = static_cast<int>(options.rootRank);
  call.reduction = options.reduceOp;
  read(call, tensors[0]);
  if (rank_ == call.root) {
    write(call, tensors[0]);
  }
  return issue(std::move(call), c10d::OpType::REDUCE, texts_of(tensors), tensors, options.asyncOp);
}

Group::Pending Group::gather_all(
    const Tensors& outputs,
    const Tensors& inputs,
    size_t parts,
    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "all_gather: no tensors");
  check_size(
      outputs.size() == inputs.size() * parts, "all_gather", texts_of(outputs), texts_of(inputs));
  for (size_t at = 0; at < outputs.size(); ++at) {
    const at::Tensor& input = inputs[at / parts];
    const int64_t expected = parts == 1 ? input.numel() * size_ : input.numel();
    check_alike(outputs[at], input, "all_gather");
    check_size(outputs[at].numel() == expected, "all_gather", text_of(outputs[at]), text_of(input));
  }
  Call call = begin(Kind::AllGather, options.timeout);
  call.parts = parts;
  read_and_write(call, inputs, outputs);
  return issue(
      std::move(call), c10d::OpType::ALLGATHER, texts_of(inputs), outputs, options.asyncOp);
}

Group::Pending Group::allgather(
    Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check_one(inputs, "all_gather");
  const auto ranks = static_cast<size_t>(size_);
  if (size_ == 1) {
    return gather_all(flattened(outputs), inputs, 1, options);
  }
  if (outputs.size() == 1 && outputs[0].size() == ranks && !alike(outputs[0])) {
    return gather_uneven(outputs[0], inputs[0], options);
  }
  return gather_all(flattened(outputs), inputs, ranks, options);
}

// Everybody's part goes to everybody, as all_to_all compares and moves parts of other sizes.
Group::Pending Group::gather_uneven(
    const Tensors& outputs, const at::Tensor& input, const c10d::AllgatherOptions& options) {
  const at::Tensor& own = outputs[static_cast<size_t>(rank_)];
  check_size(own.numel() == input.numel(), "all_gather", texts_of(outputs), text_of(input));
  Call call = begin(Kind::AllToAll, options.timeout);
  call.name = "all_gather";
  call.parts = outputs.size();
  for (const at::Tensor& output : outputs) {
    check_alike(output, input, "all_gather");
    call.sent.push_back(input.numel());
    call.received.push_back(output.numel());
  }
  return all_to_all(outputs, Tensors(outputs.size(), input), std::move(call), options.asyncOp);
}

Group::Pending Group::allgather_coalesced(
    Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  // c10d gives one list of tensors a rank here; a call has the ranks of one tensor together.
  Tensors ordered;
  for (size_t at = 0; at < inputs.size(); ++at) {
    for (const Tensors& of_rank : outputs) {
      ordered.push_back(of_rank.at(at));
    }
  }
  return gather_all(ordered, inputs, outputs.size(), options);
}

Group::Pending Group::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return gather_all({output}, {input}, 1, options);
}

Group::Pending Group::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return gather_all(outputs, inputs, 1, options);
}

Group::Pending Group::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  check_one(inputs, "gather");
  Call call = begin(Kind::Gather, options.timeout);
  call.root = static_cast<int>(options.rootRank);
  const Tensors all = flattened(outputs);
  check_size(
      all.size() == (rank_ == call.root ? static_cast<size_t>(size_) : 0),
      "gather",
      texts_of(all),
      texts_of(inputs));
  for (const at::Tensor& output : all) {
    check_alike(output, inputs[0], "gather");
    check_size(output.numel() == inputs[0].numel(), "gather", text_of(output), text_of(inputs[0]));
  }
  read_and_write(call, inputs, all);
  return issue(std::move(call), c10d::OpType::GATHER, texts_of(inputs), all, options.asyncOp);
}

Group::Pending Group::scatter(
    Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) {
  check_one(outputs, "scatter");
  Call call = begin(Kind::Scatter, options.timeout);
  call.root = static_cast<int>(options.rootRank);
  const Tensors all = flattened(inputs);
  check_size(
      all.size() == (rank_ == call.root ? static_cast<size_t>(size_) : 0),
      "scatter",
      texts_of(outputs),
      texts_of(all));
  for (const at::Tensor& input : all) {
    check_alike(outputs[0], input, "scatter");
    check_size(outputs[0].numel() == input.numel(), "scatter", text_of(outputs[0]), text_of(input));
  }
  read_and_write(call, all, outputs);
  return issue(std::move(call), c10d::OpType::SCATTER, texts_of(outputs), outputs, options.asyncOp);
}

Group::Pending Group::scatter_reduced(
    const Tensors& outputs,
    const Tensors& inputs,
    size_t parts,
    const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(!outputs.empty(), "reduce_scatter: no tensors");
  check_size(
      inputs.size() == outputs.size() * parts,
      "reduce_scatter",
      texts_of(outputs),
      texts_of(inputs));
  for (size_t at = 0; at < inputs.size(); ++at) {
    const at::Tensor& output = outputs[at / parts];
    const int64_t expected = parts == 1 ? output.numel() * size_ : output.numel();
    check_alike(output, inputs[at], "reduce_scatter");
    check_size(
        inputs[at].numel() == expected, "reduce_scatter", text_of(output), text_of(inputs[at]));
  }
  Call call = begin(Kind::ReduceScatter, options.timeout);
  call.parts = parts;
  call.reduction = options.reduceOp;
  read_and_write(call, inputs, outputs);
  return issue(
      std::move(call), c10d::OpType::REDUCE_SCATTER, texts_of(outputs), outputs, options.asyncOp);
}

// A part for each rank, of sizes of their own: one after the other is reduced.
Group::Pending Group::scatter_uneven(
    const at::Tensor& output, const Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor& own = inputs[static_cast<size_t>(rank_)];
  check_size(own.numel() == output.numel(), "reduce_scatter", text_of(output), texts_of(inputs));
  std::vector<Pending> works;
  for (int root = 0; root < size_; ++root) {
    const at::Tensor& input = inputs[static_cast<size_t>(root)];
    check_alike(output, input, "reduce_scatter");
    Call call = begin(Kind::Reduce, options.timeout);
    call.name = "reduce_scatter";
    call.root = root;
    call.reduction = options.reduceOp;
    read(call, input);
    if (rank_ == root) {
      write(call, output);
    }
    const Tensors given = rank_ == root ? Tensors{output} : Tensors();
    works.push_back(
        issue(std::move(call), c10d::OpType::REDUCE_SCATTER, text_of(input), given, true));
  }
  return c10::make_intrusive<CoalescedWork>(rank_, std::move(works));
}

Group::Pending Group::reduce_scatter(
    Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) {
  if (outputs.size() == 1 && inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_) &&
      !alike(inputs[0])) {
    return scatter_uneven(outputs[0], inputs[0], options);
  }
  return scatter_reduced(outputs, flattened(inputs), static_cast<size_t>(size_), options);
}

Group::Pending Group::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return scatter_reduced({output}, {input}, 1, options);
}

Group::Pending Group::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return scatter_reduced(outputs, inputs, 1, options);
}

Group::Pending Group::all_to_all(
    const Tensors& outputs, const Tensors& inputs, Call call, bool async) {
  read_and_write(call, inputs, outputs);
  return issue(std::move(call), c10d::OpType::ALLTOALL, texts_of(inputs), outputs, async);
}

Group::Pending Group::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& received,
    std::vector<int64_t>& sent,
    const c10d::AllToAllOptions& options) {
  check_alike(output, input, "all_to_all");
  const auto counts = [this](const at::Tensor& tensor, const std::vector<int64_t>& rows) {
    const int64_t length = tensor.dim() == 0 ? 1 : tensor.size(0);
    std::vector<int64_t> found(static_cast<size_t>(size_), tensor.numel() / size_);
    const int64_t row = length == 0 ? 0 : tensor.numel() / length;
    int64_t total = 0;
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      found.at(rank) = rows[rank] * row;
      total += rows[rank];
    }
    TORCH_CHECK_VALUE(
        rows.empty() ? length % size_ == 0 : rows.size() == found.size() && total == length,
        "all_to_all: ",
        rows.empty() ? "the first dimension is no multiple of the ranks: "
                     : "the split sizes do not add up to the first dimension: ",
        text_of(tensor));
    return found;
  };
  Call call = begin(Kind::AllToAll, options.timeout);
  call.sent = counts(input, sent);
  call.received = counts(output, received);
  return all_to_all({output}, {input}, std::move(call), options.asyncOp);
}

Group::Pending Group::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(size_);
  check_size(
      outputs.size() == ranks && inputs.size() == ranks,
      "all_to_all",
      texts_of(outputs),
      texts_of(inputs));
  Call call = begin(Kind::AllToAll, options.timeout);
  call.parts = ranks;
  for (size_t rank = 0; rank < ranks; ++rank) {
    check_alike(outputs[rank], inputs[0], "all_to_all");
    check_alike(inputs[rank], inputs[0], "all_to_all");
    call.sent.push_back(inputs[rank].numel());
    call.received.push_back(outputs[rank].numel());
  }
  return all_to_all(outputs, inputs, std::move(call), options.asyncOp);
}

Group::Pending Group::barrier(const c10d::BarrierOptions& options) {
  return issue(
      begin(Kind::Barrier, options.timeout), c10d::OpType::BARRIER, "", {}, options.asyncOp);
}

// The check before a call is one: its error names every rank that has not come.
void Group::monitoredBarrier(const c10d::BarrierOptions& options, bool) {
  barrier(options)->wait();
}

} // namespace fuse::distributed
