// Speculation: starting the first stages of a plan before its trace has ended.
#pragma once

#include "tracing/open_trace.h"
#include "tracing/recorder_stats.h"
#include "tracing/trie_node.h"

namespace fuse {

// A stream that is where it was before most likely ends as it did before; its first stages depend
// on nothing that is still to come, consume no leaf, and change nothing that anybody can see. So
// they are handed on as soon as the last call of theirs is recorded, and run while the program goes
// on recording. If the trace then ends otherwise, their results are dropped and the trace is run
// from its leaves. All under the recorder's mutex.
class Speculator {
 public:
  explicit Speculator(RecorderStats& stats) : stats_(stats) {}

  // Starts what the stream so far, which ends at `node`, is known to lead to.
  void start(OpenTrace& trace, TrieNode& node);
  // What was started of a plan, None if it was nothing; counts whether it was this plan. GIL held.
  PyRef take(OpenTrace& trace, const Plan& plan);
  // The trace ended otherwise, or its run failed.
  void drop(OpenTrace& trace);
  // Notes on the trie where the stages of a plan that has just run can start. GIL held.
  static void expect(const Plan& plan);

 private:
  void count_miss(TrieNode& at);

  RecorderStats& stats_;
};

} // namespace fuse
