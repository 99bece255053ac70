// The plan runner: finds plans of traces, has them made by the engine, and runs them.
#pragma once

#include "tracing/open_trace.h"
#include "tracing/speculation.h"
#include "tracing/trie_node.h"

namespace fuse {

// A plan, and whether there was none that serves the trace.
struct PlanFor {
  Plan* plan = nullptr;
  bool made = false;
};

// All with the GIL, under the recorder's mutex.
class PlanRunner {
 public:
  explicit PlanRunner(Speculator& speculator) : speculator_(speculator) {}

  // A plan of where the trace ends that leaves these values alive.
  // `waits` if its executables are to be there when it has been made.
  PlanFor plan_for(const OpenTrace& trace, std::vector<int32_t> live, bool waits = false);
  // Runs it: the values that it leaves alive become their buffers'.
  void execute(OpenTrace& trace, Plan& plan, CutReason reason);
  // Notes whether all executables of a plan that has run are there.
  static void look_for_executables(Plan& plan);
  // Whether plans have come to hold too many executables since it was asked last.
  bool take_crowded() {
    return std::exchange(crowded_, false);
  }

 private:
  Plan* make(
      const OpenTrace& trace,
      std::vector<int32_t> live,
      const std::vector<int32_t>& donatable,
      bool waits);

  Speculator& speculator_;
  bool crowded_ = false;
};

// Whether an executable of a plan is still being made. GIL held.
bool waits_for_executables(const PyRef& plan);
// The calls that lead to a node, as the engine made them; their nodes, the last one first.
PyRef recorded_nodes(TrieNode& node, std::vector<TrieNode*>& path);

} // namespace fuse
