#include "process_group/group.h"

#include <algorithm>
#include <sstream>

#include "process_group/arguments.h"
#include "transport/gil.h"
#include "transport/threads.h"

namespace fuse::distributed {

namespace {

constexpr auto kPatience = std::chrono::milliseconds(10000); // for what runs when a group ends

} // namespace

Group::Group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::chrono::milliseconds timeout,
    std::string name,
    std::vector<int64_t> ranks,
    bool simulated,
    py::object callbacks)
    : Backend(rank, size),
      options_(c10::make_intrusive<GroupOptions>(timeout)),
      store_(store),
      name_(name),
      runner_(
          std::make_shared<Runner>(
              store, rank, size, name, timeout, simulated, std::move(callbacks))) {
  options_->group_name = std::move(name);
  options_->global_ranks_in_group.assign(ranks.begin(), ranks.end());
}

Group::~Group() {
  const GilRelease released;
  runner_->stop(std::chrono::milliseconds(0), "has let go of the group");
}

void Group::abort() {
  runner_->stop(std::chrono::milliseconds(0), "has aborted the group");
}

void Group::shutdown() {
  const GilRelease released;
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
      name_of(call),
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
    source.taken = runner_->callbacks().values().take(plain);
  } else {
    source.tensor = plain.view({-1});
  }
  call.sources.push_back(std::move(source));
}

// After everything has been read: a tensor may be both.
void Group::write(Call& call, const at::Tensor& tensor) {
  TORCH_CHECK(
      !tensor.is_conj() && !tensor.is_neg(),
      name_of(call),
      ": a result cannot be written to a conjugate or negative view; call resolve_conj() first");
  Target target{tensor, {}, {}};
  if (tensor.is_privateuseone()) {
    call.on_device = true;
    target.promised = runner_->callbacks().values().promise(tensor, target.whole);
  }
  call.targets.push_back(std::move(target));
}

void Group::read_and_write(Call& call, const Tensors& inputs, const Tensors& outputs) {
  for (const at::Tensor& input : inputs) {
    read(call, input);
  }
  for (const at::Tensor& output : outputs) {
    write(call, output);
  }
}

Group::Pending Group::issue(
    Call call, c10d::OpType type, const std::string& sizes, Tensors outputs, bool async) {
  const GilRelease released;
  std::ostringstream head;
  head << name_of(call);
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
  const std::string line = runner_->callbacks().line();
  call.text += line.empty() ? "" : " at " + line;
  const Pieces pieces = pieces_of(call);
  const bool waits = !async && !coalescing_ && pieces.empty();
  const Pending work = noted(runner_->add(std::move(call), type, std::move(outputs), waits));
  for (const auto& [tensor, whole] : pieces) {
    runner_->callbacks().values().place(tensor, whole);
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
  return c10::make_intrusive<CoalescedWork>(rank_, std::exchange(coalesced_, {}));
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
  return runner_->callbacks().split(
      store,
      static_cast<int>(found - ranks.begin()),
      static_cast<int>(ranks.size()),
      options ? options->timeout : options_->timeout,
      options ? options->group_name : name_,
      global);
}

} // namespace fuse::distributed
