#include "group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "released.h"
#include "threads.h"

namespace fuse::distributed {

namespace {

constexpr auto kPatience = std::chrono::milliseconds(10000); // for what runs when a group ends

std::string text_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << dtype_name(tensor.scalar_type()) << '[';
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    text << (dim == 0 ? "" : ",") << tensor.size(dim);
  }
  text << ']';
  return text.str();
}

std::string texts_of(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    text += (text.empty() ? "" : ", ") + text_of(tensor);
  }
  return text;
}

std::vector<at::Tensor> flattened(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

// Whether all have as many elements as the first.
bool alike(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.numel() == tensors.front().numel();
  });
}

using Pieces = std::vector<std::pair<at::Tensor, at::Tensor>>;

// Targets that are parts of a storage, each with what gets its value, which the call lets go of.
Pieces pieces_of(Call& call) {
  Pieces pieces;
  for (Target& target : call.targets) {
    if (target.whole.defined()) {
      pieces.emplace_back(target.tensor, std::exchange(target.whole, at::Tensor()));
    }
  }
  return pieces;
}

void check_one(const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what, ": one tensor, not ", tensors.size());
}

void check_alike(const at::Tensor& one, const at::Tensor& other, const char* what) {
  TORCH_CHECK_TYPE(
      one.scalar_type() == other.scalar_type(),
      what,
      ": tensors of one dtype, not ",
      text_of(one),
      " and ",
      text_of(other));
}

void check_size(
    bool fits, const char* what, const std::string& outputs, const std::string& inputs) {
  TORCH_CHECK_VALUE(fits, what, ": the sizes do not fit: outputs ", outputs, ", inputs ", inputs);
}

} // namespace

Group::Group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::chrono::milliseconds timeout,
    std::string name,
    std::vector<int64_t> ranks,
    py::object host)
    : Backend(rank, size),
      options_(c10::make_intrusive<GroupOptions>(timeout)),
      store_(store),
      name_(name),
      runner_(std::make_shared<Runner>(store, rank, size, name, timeout, std::move(host))) {
  options_->group_name = std::move(name);
  options_->global_ranks_in_group.assign(ranks.begin(), ranks.end());
}

Group::~Group() {
  const Released released;
  runner_->stop(std::chrono::milliseconds(0), "has let go of the group");
}

void Group::abort() {
  runner_->stop(std::chrono::milliseconds(0), "has aborted the group");
}

void Group::shutdown() {
  const Released released;
  runner_->stop(kPatience, "has left the group (destroy_process_group)");
}

// ---- a call in the making -----------------------------------------------------------------

Call Group::begin(Kind kind, std::chrono::milliseconds timeout) {
  Call call;
  call.kind = kind;
  call.timeout = timeout.count() > 0 ? timeout : options_->timeout;
  return call;
}

void Group::read(Call& call, const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.layout() == c10::kStrided,
      kind_name(call.kind),
      ": dense tensors only, not ",
      tensor.layout(),
      "; call to_dense() first");
  at::Tensor plain = tensor.resolve_conj().resolve_neg().contiguous();
  Source source;
  source.dtype = tensor.scalar_type();
  source.elements = tensor.numel();
  if (tensor.is_privateuseone()) {
    call.on_device = true;
    if (plain.nbytes() != plain.storage().nbytes() && runner_->by_runtime()) {
      plain = plain.clone(); // the runtime takes arrays, and a part of one would go by the host
    }
    source.taken = runner_->host().values().take(plain);
  } else {
    source.tensor = plain.view({-1});
  }
  call.sources.push_back(std::move(source));
}

// After everything has been read: a tensor may be both.
void Group::write(Call& call, const at::Tensor& tensor) {
  TORCH_CHECK(
      !tensor.is_conj() && !tensor.is_neg(),
      kind_name(call.kind),
      ": a result cannot be written to a conjugate or negative view; call resolve_conj() first");
  Target target{tensor, {}, {}};
  if (tensor.is_privateuseone()) {
    call.on_device = true;
    target.promised = runner_->host().values().promise(tensor, target.whole);
  }
  call.targets.push_back(std::move(target));
}

Group::Pending Group::issue(
    Call call, c10d::OpType type, const std::string& sizes, Tensors outputs, bool async) {
  const Released released;
  std::ostringstream head;
  head << (call.name != nullptr ? call.name : kind_name(call.kind));
  if (call.kind == Kind::AllReduce || call.kind == Kind::Reduce ||
      call.kind == Kind::ReduceScatter) {
    head << '.' << reduction_name(call.reduction);
  }
  std::ostringstream signature;
  signature << head.str() << " root " << call.root;
  // What is alike on every rank: targets where the sources are the root's, else the sources.
  if (call.kind == Kind::Scatter || call.kind == Kind::ReduceScatter) {
    for (const Target& target : call.targets) {
      signature << ' ' << dtype_name(target.tensor.scalar_type()) << target.tensor.numel();
    }
  } else {
    for (const Source& source : call.sources) {
      signature << ' ' << dtype_name(source.dtype);
      if (call.kind != Kind::AllToAll) {
        signature << source.elements;
      } else {
        break; // compared rank by rank
      }
    }
  }
  call.signature = signature.str();
  call.text = head.str() + "(" + sizes + ")";
  if (call.root >= 0) {
    call.text += " root " + std::to_string(call.root);
  }
  const std::string line = runner_->host().line();
  call.text += line.empty() ? "" : " at " + line;
  const Pieces pieces = pieces_of(call);
  const bool waits = !async && !coalescing_ && pieces.empty();
  const Pending work = noted(runner_->add(std::move(call), type, std::move(outputs), waits));
  for (const auto& [tensor, whole] : pieces) {
    runner_->host().values().place(tensor, whole);
  }
  return work;
}

// A call between startCoalescing and endCoalescing is a part of what that returns.
Group::Pending Group::noted(Pending work) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (coalescing_) {
    coalesced_.push_back(work);
  }
  return work;
}

void Group::startCoalescing() {
  std::lock_guard<std::mutex> guard(mutex_);
  coalescing_ = true;
}

c10::intrusive_ptr<c10d::Work> Group::endCoalescing() {
  std::lock_guard<std::mutex> guard(mutex_);
  coalescing_ = false;
  return c10::make_intrusive<Together>(rank_, std::exchange(coalesced_, {}));
}

// ---- the collectives ------------------------------------------------------------------------

Group::Pending Group::all_reduce(
    Tensors& tensors,
    const c10d::ReduceOp& reduction,
    std::chrono::milliseconds timeout,
    bool async) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce: no tensors");
  Call call = begin(Kind::AllReduce, timeout);
  call.reduction = reduction;
  for (const at::Tensor& tensor : tensors) {
    read(call, tensor);
  }
  for (const at::Tensor& tensor : tensors) {
    write(call, tensor);
  }
  const auto type =
      tensors.size() == 1 ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED;
  return issue(std::move(call), type, texts_of(tensors), tensors, async);
}

Group::Pending Group::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return all_reduce(tensors, options.reduceOp, options.timeout, options.asyncOp);
}

Group::Pending Group::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return all_reduce(tensors, options.reduceOp, options.timeout, options.asyncOp);
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
    std::chrono::milliseconds timeout,
    bool async) {
  TORCH_CHECK_VALUE(!inputs.empty(), "all_gather: no tensors");
  check_size(
      outputs.size() == inputs.size() * parts, "all_gather", texts_of(outputs), texts_of(inputs));
  for (size_t at = 0; at < outputs.size(); ++at) {
    const at::Tensor& input = inputs[at / parts];
    const int64_t expected = parts == 1 ? input.numel() * size_ : input.numel();
    check_alike(outputs[at], input, "all_gather");
    check_size(outputs[at].numel() == expected, "all_gather", text_of(outputs[at]), text_of(input));
  }
  Call call = begin(Kind::AllGather, timeout);
  call.parts = parts;
  for (const at::Tensor& input : inputs) {
    read(call, input);
  }
  for (const at::Tensor& output : outputs) {
    write(call, output);
  }
  return issue(std::move(call), c10d::OpType::ALLGATHER, texts_of(inputs), outputs, async);
}

Group::Pending Group::allgather(
    Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check_one(inputs, "all_gather");
  const auto ranks = static_cast<size_t>(size_);
  if (size_ == 1) {
    return gather_all(flattened(outputs), inputs, 1, options.timeout, options.asyncOp);
  }
  if (outputs.size() == 1 && outputs[0].size() == ranks && !alike(outputs[0])) {
    return gather_uneven(outputs[0], inputs[0], options);
  }
  return gather_all(flattened(outputs), inputs, ranks, options.timeout, options.asyncOp);
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
  return gather_all(ordered, inputs, outputs.size(), options.timeout, options.asyncOp);
}

Group::Pending Group::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return gather_all({output}, {input}, 1, options.timeout, options.asyncOp);
}

Group::Pending Group::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return gather_all(outputs, inputs, 1, options.timeout, options.asyncOp);
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
  read(call, inputs[0]);
  for (const at::Tensor& output : all) {
    write(call, output);
  }
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
    read(call, input);
  }
  write(call, outputs[0]);
  return issue(std::move(call), c10d::OpType::SCATTER, texts_of(outputs), outputs, options.asyncOp);
}

Group::Pending Group::scatter_reduced(
    const Tensors& outputs,
    const Tensors& inputs,
    size_t parts,
    const c10d::ReduceOp& reduction,
    std::chrono::milliseconds timeout,
    bool async) {
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
  Call call = begin(Kind::ReduceScatter, timeout);
  call.parts = parts;
  call.reduction = reduction;
  for (const at::Tensor& input : inputs) {
    read(call, input);
  }
  for (const at::Tensor& output : outputs) {
    write(call, output);
  }
  return issue(std::move(call), c10d::OpType::REDUCE_SCATTER, texts_of(outputs), outputs, async);
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
  return c10::make_intrusive<Together>(rank_, std::move(works));
}

Group::Pending Group::reduce_scatter(
    Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) {
  if (outputs.size() == 1 && inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_) &&
      !alike(inputs[0])) {
    return scatter_uneven(outputs[0], inputs[0], options);
  }
  return scatter_reduced(
      outputs,
      flattened(inputs),
      static_cast<size_t>(size_),
      options.reduceOp,
      options.timeout,
      options.asyncOp);
}

Group::Pending Group::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return scatter_reduced({output}, {input}, 1, options.reduceOp, options.timeout, options.asyncOp);
}

Group::Pending Group::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return scatter_reduced(outputs, inputs, 1, options.reduceOp, options.timeout, options.asyncOp);
}

Group::Pending Group::all_to_all(
    const Tensors& outputs, const Tensors& inputs, Call call, bool async) {
  for (const at::Tensor& input : inputs) {
    read(call, input);
  }
  for (const at::Tensor& output : outputs) {
    write(call, output);
  }
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

// ---- point to point: gloo, beside the collectives ---------------------------------------------

Group::Pending Group::send(Tensors& tensors, int to, int tag) {
  const Released released;
  check_one(tensors, "send");
  at::Tensor flat = tensors[0].contiguous();
  if (flat.is_privateuseone()) {
    const DeviceValues& values = runner_->host().values();
    flat = values.read(values.take(flat));
  }
  Tensors sent{flat.view({-1}).view(at::kByte)};
  return noted(runner_->gloo()->send(sent, to, tag));
}

Group::Pending Group::receive(Tensors& tensors, int from, int tag) {
  const Released released;
  check_one(tensors, "recv");
  const at::Tensor& tensor = tensors[0];
  Call call;
  write(call, tensor);
  const Pieces pieces = pieces_of(call);
  at::Tensor flat = at::empty({tensor.numel()}, at::TensorOptions().dtype(tensor.scalar_type()));
  Tensors received{flat.view(at::kByte)};
  auto gloo = runner_->gloo();
  Pending inner = from < 0 ? gloo->recvAnysource(received, tag) : gloo->recv(received, from, tag);
  auto work = c10::make_intrusive<Work>(rank_, c10d::OpType::RECV, 0, tensors);
  if (from < 0) {
    work->set_source([inner] { return inner->sourceRank(); });
  }
  const auto text = "recv(" + text_of(tensor) + ") from rank " + std::to_string(from);
  Threads::global().run([runner = runner_,
                         completion = work->completion(),
                         inner,
                         flat,
                         text,
                         target = call.targets[0],
                         timeout = options_->timeout]() mutable {
    std::exception_ptr error;
    try {
      inner->wait(timeout);
      give(target, flat);
    } catch (const std::exception& failure) {
      const std::string why = runner->explained(failure.what(), 0, text);
      if (target.promised) {
        runner->host().values().fail(target.promised, why);
      }
      error = std::make_exception_ptr(
          c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, why));
    }
    target = Target(); // see Completion
    completion->complete(error);
  });
  if (!pieces.empty()) {
    // Not before: what is sent next must not have to wait for what comes.
    work->set_after([runner = runner_, pieces] {
      for (const auto& [part, whole] : pieces) {
        runner->host().values().place(part, whole);
      }
    });
  }
  return noted(work);
}

Group::Pending Group::recv(Tensors& tensors, int from, int tag) {
  return receive(tensors, from, tag);
}

Group::Pending Group::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, -1, tag);
}

c10::intrusive_ptr<c10d::Backend> Group::split(
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& options) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) {
    return nullptr;
  }
  std::vector<int64_t> global;
  for (const int rank : ranks) {
    const auto& mine = options_->global_ranks_in_group;
    global.push_back(mine.empty() ? rank : static_cast<int64_t>(mine.at(rank)));
  }
  return runner_->host().split(
      store,
      static_cast<int>(found - ranks.begin()),
      static_cast<int>(ranks.size()),
      options ? options->timeout : options_->timeout,
      options ? options->group_name : name_,
      global);
}

} // namespace fuse::distributed
