// First sights: a stream that has not come by often, or waits for its executables, runs uncompiled
// on PyTorch's own kernels and the same memory. Describing, planning and compiling it takes some
// hundred times as long as running it, and pays only if it comes back.
#include <ATen/core/dispatch/Dispatcher.h>

#include "recorder/lock.h"
#include "recorder/recorder.h"
#include "recorder/tensors_in.h"

namespace fuse {

namespace {

constexpr size_t kMostKinds = 1 << 14; // of calls that streams begin with

// Whether the CPU computes the operator. What draws random numbers is drawn by the device.
bool runs_on_cpu(const c10::OperatorHandle& op, const OpInfo& info) {
  using Known = OpInfo::Known;
  Known known = info.on_cpu.load(std::memory_order_relaxed);
  if (known == Known::Unknown) {
    const bool runs = op.schema().getNamespace() == "aten" && // others' may be programs, too
        op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    known = runs ? Known::Yes : Known::No;
    info.on_cpu.store(known, std::memory_order_relaxed);
  }
  return known == Known::Yes;
}

} // namespace

bool Recorder::begins_sighting(TrieNode* node, const c10::OperatorHandle& op, const OpInfo& info) {
  if (sightings_needed_ == 0 || open_->operations != 0 || open_->sighting.goes_on() ||
      open_->capture != nullptr || !may_run_uncompiled() || !runs_on_cpu(op, info) ||
      open_->sighting.was_exhausted()) {
    return false;
  }
  const uint64_t first = hash_words(call_.words);
  if (sightings_.size() > kMostKinds) {
    sightings_.clear();
  }
  if (node != nullptr ? !waits(*node) : sightings_[call_.rank_hash].returns(first)) {
    return false;
  }
  open_->sighting.begin(first, call_.rank_hash, limit_);
  return true;
}

bool Recorder::goes_on_sighting(
    const c10::OperatorHandle& op, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (!follows_sighting() || AnyShape::here() || !runs_on_cpu(op, info)) {
    return false;
  }
  UnboxedOperands operands;
  for (const c10::IValue& argument : arguments) {
    for_tensors(argument, [&](const at::Tensor& tensor) { operands.see(tensor); });
  }
  return goes_on_sighting(info, operands);
}

bool Recorder::goes_on_sighting(const OpInfo& info, const UnboxedOperands& operands) {
  Sighting& sighting = Streams::here_if_any()->sighting; // it has begun there
  if (sighting.add(
          reinterpret_cast<uint64_t>(&info) ^ operands.hash(),
          static_cast<uint64_t>(operands.elements()))) {
    return true;
  }
  Lock lock(*this);
  end_sighting();
  open_->sighting.exhaust(); // what follows is recorded: a loop without a read would never return
  return false;
}

void Recorder::end_sighting() {
  // Draws of its own, which are recorded and read, do not end it.
  if (!AnyShape::here() && open_->sighting.end()) {
    sightings_[open_->sighting.kind()].ends(open_->sighting, sightings_needed_);
  }
}

bool Recorder::waits(TrieNode& first) {
  if (!first.waits_for) {
    return false;
  }
  GilGuard gil;
  PyRef waits = call_engine("waits", pack(PyRef::borrow(first.waits_for.get())));
  if (waits.get() != Py_True) {
    first.waits_for = {};
  }
  return waits.get() == Py_True;
}

void Recorder::set_sightings(uint32_t needed) {
  Lock lock(*this);
  sightings_needed_ = needed;
  sightings_.clear();
  for (OpenTrace* trace : Streams::global().all()) {
    trace->sighting.end();
  }
}

void Recorder::end_uncompiled() {
  OpenTrace* here = Streams::here_if_any();
  if (here == nullptr) {
    return;
  }
  here->brief.store(nullptr, std::memory_order_relaxed);
  if (follows_sighting() && !AnyShape::here()) {
    Lock lock(*this);
    end_sighting();
  }
}

} // namespace fuse
