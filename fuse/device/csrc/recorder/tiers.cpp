// Where the policy of tiers is asked, and told: as a segment begins, ends, and is handed on.
//
// A segment is what a stream calls from one cut to the next. One that runs uncompiled runs on
// PyTorch's CPU kernels, on the memory that they share with the device.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <utility>

#include "recorder/lock.h"
#include "recorder/recorder.h"
#include "recorder/tensors_in.h"

namespace fuse {

namespace {

constexpr tiering::Nanoseconds kLook = 2'000'000; // between looks at what is being compiled

tiering::Nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Leaves the rows of no group undefined on the CPU; they are zeros on the device.
constexpr const char* kUndefinedRows = "aten::_grouped_mm";

// Whether the CPU computes the operator. What draws random numbers is drawn by the device.
bool runs_on_cpu(const c10::OperatorHandle& op, const OpInfo& info) {
  using Known = OpInfo::Known;
  Known known = info.on_cpu.load(std::memory_order_relaxed);
  if (known == Known::Unknown) {
    const bool runs = op.schema().getNamespace() == "aten" && // others' may be programs, too
        op.schema().name() != kUndefinedRows &&
        op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    known = runs ? Known::Yes : Known::No;
    info.on_cpu.store(known, std::memory_order_relaxed);
  }
  return known == Known::Yes;
}

} // namespace

tiering::Policy Recorder::make_policy() {
  return tiering::Policy(now());
}

bool Recorder::begins_uncompiled(const c10::OperatorHandle& op, const OpInfo& info) {
  if (policy_.setting() == tiering::Setting::Compiled || open_->operations != 0 ||
      open_->segment.goes_on() || AnyShape::here()) {
    return false;
  }
  if (!may_run_uncompiled() || open_->capture != nullptr || !runs_on_cpu(op, info)) {
    policy_.leaves(open_->place);
    return false;
  }
  look_at_pending();
  // Evaluation begins as training does, but for the gradients.
  const uint64_t kind = call_.rank_hash ^ static_cast<uint64_t>(at::GradMode::is_enabled());
  const auto tier = policy_.begin(open_->place, kind, hash_words(call_.words), now());
  open_->place.kind->name = &info.name;
  if (tier == tiering::Tier::Compiled) {
    return false;
  }
  open_->segment.begin(limit_);
  ++stats_.uncompiled_segments;
  return true;
}

bool Recorder::goes_on_uncompiled(
    const c10::OperatorHandle& op, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (!follows_uncompiled() || AnyShape::here() || !runs_on_cpu(op, info)) {
    return false;
  }
  UnboxedOperands operands;
  for (const c10::IValue& argument : arguments) {
    for_tensors(argument, [&](const at::Tensor& tensor) { operands.see(tensor); });
  }
  return goes_on_uncompiled(info, operands);
}

bool Recorder::goes_on_uncompiled(const OpInfo& info, const UnboxedOperands& operands) {
  tiering::Segment& segment = Streams::here_if_any()->segment; // it has begun there
  if (segment.add(reinterpret_cast<uint64_t>(&info) ^ operands.hash())) {
    return true;
  }
  Lock lock(*this);
  open_->place.endless = segment.is_loop(); // what follows is recorded: it would never return
  end_segment();
  return false;
}

std::optional<HostRun> Recorder::runs_unboxed(const OpInfo& info, const UnboxedOperands& operands) {
  // None for most calls, after one flag. What is not plain is left to boxed calls.
  if (!follows_uncompiled() || !operands.plain() || !may_run_uncompiled()) {
    return std::nullopt;
  }
  check_process();
  if (!goes_on_uncompiled(info, operands)) {
    return std::nullopt;
  }
  uncompiled_.fetch_add(1, std::memory_order_relaxed);
  return HostRun::Uncompiled;
}

void Recorder::end_segment() {
  // Draws of its own, which are recorded and read, do not end it.
  if (!AnyShape::here() && open_->segment.end()) {
    policy_.ends(open_->place, open_->segment.stream(), open_->segment.calls());
    if (watched_) {
      ran_.push_back(
          {open_->place.kind_id, open_->segment.calls() + 1, now() - open_->place.start, PyRef()});
    }
  }
}

void Recorder::end_uncompiled() {
  if (follows_uncompiled() && !AnyShape::here()) {
    Lock lock(*this);
    end_segment();
  }
}

void Recorder::hand_on_segment(CutReason reason, const Plan* plan, bool planned) {
  if (watched_ && plan != nullptr) {
    const bool own = open_->place.open && !open_->segment.goes_on();
    GilGuard gil;
    ran_.push_back(
        {own ? open_->place.kind_id : 0, open_->operations, 0, PyRef::borrow(plan->handle.get())});
  }
  if (policy_.setting() == tiering::Setting::Compiled || !open_->place.open ||
      open_->segment.goes_on()) {
    return; // nothing to decide, or a call that was recorded alone
  }
  const bool pending = plan != nullptr && !plan->ready;
  policy_.hands_on(open_->place, planned, pending, open_->operations);
  open_->place.endless = reason == CutReason::RepeatMark || reason == CutReason::SizeBound;
  if (pending) {
    pending_.push_back(
        {open_->place.kind_id, open_->place.first, PyRef::borrow(plan->handle.get())});
  }
}

void Recorder::look_at_pending() {
  if (pending_.empty() || now() - looked_ < kLook) {
    return;
  }
  looked_ = now();
  GilGuard gil;
  std::erase_if(pending_, [this](const Pending& one) {
    PyRef waits = call_engine("waits", pack(PyRef::borrow(one.plan.get())));
    if (waits.get() != Py_True) {
      policy_.is_ready(one.kind, one.first);
    }
    return waits.get() != Py_True;
  });
}

void Recorder::set_tier(tiering::Setting setting) {
  Lock lock(*this);
  for (OpenTrace* trace : Streams::global().all()) {
    trace->segment.end();
    trace->place = {};
  }
  policy_.set(setting);
  GilGuard gil;
  pending_.clear();
}

std::vector<Ran> Recorder::watch(tiering::Watch watch) {
  Lock lock(*this);
  for (OpenTrace* trace : Streams::global().all()) {
    trace->segment.end();
    trace->place = {};
  }
  policy_.watch(watch);
  watched_ = watch != tiering::Watch::No;
  return std::exchange(ran_, {});
}

std::vector<TierReport> Recorder::tiers() {
  Lock lock(*this);
  std::vector<TierReport> found;
  for (const auto& [id, kind] : policy_.kinds()) {
    TierReport& report = found.emplace_back();
    report.kind = id;
    report.name = kind.name == nullptr ? "" : *static_cast<const std::string*>(kind.name);
    report.compiled = kind.tier == tiering::Tier::Compiled;
    for (size_t tier = 0; tier < 2; ++tier) {
      report.segments[tier] = kind.segments[tier];
      report.measured[tier] = kind.measured[tier];
    }
    report.trials = kind.trials;
    report.tried = policy_.tries(kind);
    report.endless = kind.endless;
    for (const auto& [first, entry] : kind.entries) {
      ++report.entries[static_cast<size_t>(entry.state)];
      report.returning = std::max(report.returning, entry.returning);
      if (entry.spent >= report.spent) {
        report.returns = entry.returns();
        report.spent = entry.spent;
        report.price = policy_.price(kind, entry);
      }
    }
  }
  return found;
}

bool Recorder::is_settled() {
  Lock lock(*this);
  return pending_.empty() && !policy_.tries();
}

} // namespace fuse
