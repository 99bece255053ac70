#include "tracing/segment_tiers.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <utility>

#include "tracing/record_only.h"

namespace fuse {

namespace {

constexpr tiering::Nanoseconds kLook = 2'000'000; // between looks at what is being compiled

tiering::Nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

} // namespace

bool runs_on_cpu(const c10::OperatorHandle& op, const OpInfo& info) {
  using Known = OpInfo::Known;
  Known known = info.on_cpu.load(std::memory_order_relaxed);
  if (known == Known::Unknown) {
    const bool runs = op.schema().getNamespace() == "aten" && // others' may be programs, too
        !info.undefined_rows && op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    known = runs ? Known::Yes : Known::No;
    info.on_cpu.store(known, std::memory_order_relaxed);
  }
  return known == Known::Yes;
}

SegmentTiers::SegmentTiers(RecorderStats& stats) : stats_(stats), policy_(now()) {}

bool SegmentTiers::begins_uncompiled(
    OpenTrace& trace, const CallKey& key, const BoxedCall& call, bool may) {
  if (trace.asked || !decides() || trace.segment.goes_on()) {
    return false;
  }
  trace.asked = true;
  if (RecordOnly::here()) {
    return false;
  }
  if (!may || trace.capture != nullptr || !runs_on_cpu(call.op, call.info)) {
    leave(trace);
    return false;
  }
  look_at_pending();
  // Evaluation begins as training does, but for the gradients; and what follows a compiled graph is
  // recorded behind it.
  const uint64_t where = static_cast<uint64_t>(at::GradMode::is_enabled()) |
      static_cast<uint64_t>(std::exchange(trace.behind_graph, false)) << 1;
  const auto tier = policy_.begin(trace.place, key.rank_hash ^ where, key.shape_hash, now());
  trace.place.kind->name = &call.info.name;
  return tier == tiering::Tier::Uncompiled;
}

void SegmentTiers::begin(OpenTrace& trace, size_t most) {
  trace.segment.begin(most);
  ++stats_.uncompiled_segments;
}

void SegmentTiers::end(OpenTrace& trace) {
  if (!RecordOnly::here()) {
    trace.segment.forget_loop();
  }
  end_piece(trace);
}

void SegmentTiers::end_piece(OpenTrace& trace) {
  // A call that is recorded alone, since the CPU's kernel met a limit, does not end it.
  if (!RecordOnly::here() && trace.segment.end()) {
    trace.asked = false;
    const bool own = trace.place.open; // else a graph's, whose executables are being made
    policy_.ends(trace.place, trace.segment.stream(), trace.segment.calls());
    if (watched_ && own) {
      ran_.push_back(
          {trace.place.kind_id, trace.segment.calls() + 1, now() - trace.place.start, PyRef()});
    } else if (watched_) {
      ran_.push_back({0, trace.segment.calls(), 0, PyRef()});
    }
  }
}

void SegmentTiers::hand_on(OpenTrace& trace, const PlanFor& planned) {
  const Plan* plan = planned.plan;
  if (watched_ && plan != nullptr) {
    const bool own = trace.place.open && trace.place.tier == tiering::Tier::Compiled;
    GilGuard gil;
    ran_.push_back(
        {own ? trace.place.kind_id : 0, trace.operations, 0, PyRef::borrow(plan->handle.get())});
  }
  if (!decides() || trace.segment.goes_on()) {
    return; // nothing to decide, or a call that was recorded alone
  }
  const bool pending = plan != nullptr && !plan->ready;
  const auto handed = policy_.hands_on(trace.place, planned.made, pending, trace.operations);
  for (size_t at = 0; pending && at < handed.size(); ++at) {
    pending_.push_back({handed[at].kind_id, handed[at].first, PyRef::borrow(plan->handle.get())});
  }
}

void SegmentTiers::look_at_pending() {
  if (pending_.empty() || now() - looked_ < kLook) {
    return;
  }
  looked_ = now();
  GilGuard gil;
  std::erase_if(pending_, [this](const Pending& one) {
    const bool ready = !waits_for_executables(one.plan);
    if (ready) {
      policy_.is_ready(one.kind, one.first);
    }
    return ready;
  });
}

void SegmentTiers::begin_anew() {
  for (OpenTrace* trace : Streams::global().all()) {
    trace->asked = trace->asked && trace->operations != 0;
    trace->segment.end();
    trace->place = {};
  }
}

void SegmentTiers::set(tiering::Setting setting) {
  begin_anew();
  policy_.set(setting);
  GilGuard gil;
  pending_.clear();
}

std::vector<RanSegment> SegmentTiers::watch(tiering::Watch watch) {
  begin_anew();
  policy_.watch(watch);
  watched_ = watch != tiering::Watch::No;
  return std::exchange(ran_, {});
}

std::vector<TierReport> SegmentTiers::report() const {
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

} // namespace fuse
