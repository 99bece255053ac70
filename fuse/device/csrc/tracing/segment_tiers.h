// Segment tiers: where the policy of tiers is asked, and told.
#pragma once

#include <string>
#include <vector>

#include "runtime/python_bridge.h"
#include "tiering/policy.h"
#include "tracing/plan_runner.h"
#include "tracing/recorder_stats.h"
#include "tracing/shape_inference.h"
#include "tracing/streams.h"

namespace fuse {

// What the policy of tiers knows of one kind of segment; arrays are by tier, entries by state.
struct TierReport {
  uint64_t kind = 0;
  std::string name; // of the operator that it begins with
  bool compiled = false;
  uint64_t segments[2] = {0, 0};
  tiering::Nanoseconds measured[2] = {0, 0};
  uint32_t trials = 0;
  uint32_t entries[3] = {0, 0, 0};
  uint32_t returning = 0;
  bool tried = false; // now
  // Of the entry that spent most; whether what is recorded of it comes by again.
  bool returns = true;
  tiering::Nanoseconds spent = 0, price = 0;
};

// A segment that ran while somebody watched; of a kind of number 0 if the policy was not asked.
struct RanSegment {
  uint64_t kind = 0, calls = 0;
  tiering::Nanoseconds took = 0;
  PyRef plan; // none if it ran uncompiled
};

// Whether the CPU computes the operator. What draws random numbers is drawn by the device.
bool runs_on_cpu(const c10::OperatorHandle& op, const OpInfo& info);

// A segment is what a stream calls from one cut to the next. One that runs uncompiled runs on
// PyTorch's CPU kernels, on the memory that they share with the device. Under the recorder's mutex
// but for what says otherwise.
class SegmentTiers {
 public:
  explicit SegmentTiers(RecorderStats& stats);

  // Whether the calling thread's segment runs uncompiled. Without the mutex.
  static bool runs_uncompiled() {
    const OpenTrace* here = Streams::here_if_any();
    return here != nullptr && here->segment.goes_on();
  }
  // Whether a segment begins with this call that is to run uncompiled; `may` if anything does. It
  // does where a trace begins, and behind a compiled graph.
  bool begins_uncompiled(OpenTrace& trace, const CallKey& key, const BoxedCall& call, bool may);
  // That segment begins, on a trace that holds nothing; at most `most` calls run in it.
  void begin(OpenTrace& trace, size_t most);
  // The stream's uncompiled segment ends, if there is one: after its calls, which come to an end
  // here.
  void end(OpenTrace& trace);
  // The same where it has become too long, or a piece of a loop that goes on.
  void end_piece(OpenTrace& trace);
  // What the stream records next is none of the policy's.
  void leave(OpenTrace& trace) {
    policy_.leaves(trace.place);
  }
  // A graph is captured here, and was compiled before.
  static void passes(OpenTrace& trace) {
    tiering::Policy::passes(trace.place);
  }
  // Tells the policy what became of a recorded segment; without a plan nothing of it lives on.
  void hand_on(OpenTrace& trace, const PlanFor& planned);
  // Whether there is anything to decide.
  bool decides() const {
    return policy_.setting() != tiering::Setting::Compiled;
  }
  // Whether what waits for its executables may run uncompiled till they are there.
  bool may_wait() const {
    return decides() && policy_.watch() != tiering::Watch::Recorded;
  }

  void set(tiering::Setting setting);
  void forget() {
    policy_.forget();
  }
  std::vector<TierReport> report() const;
  // What ran since it was called last, if somebody watched; from now on `watch` says who does.
  std::vector<RanSegment> watch(tiering::Watch watch);
  // Whether nothing is being tried or compiled.
  bool settled() const {
    return pending_.empty() && !policy_.tries();
  }

 private:
  // A plan whose executables are being made, and the segment that waits for them.
  struct Pending {
    uint64_t kind, first;
    PyRef plan;
  };

  // Tells the policy which executables have been made meanwhile.
  void look_at_pending();
  static void begin_anew();

  RecorderStats& stats_;
  tiering::Policy policy_;
  std::vector<Pending> pending_;
  bool watched_ = false;
  std::vector<RanSegment> ran_; // while it is
  tiering::Nanoseconds looked_ = 0; // at what is pending, last
};

} // namespace fuse
