#include "tracing/trace_builder.h"

#include <algorithm>
#include <exception>

#include "runtime/memory.h"
#include "runtime/python_bridge.h"
#include "tracing/call_binding.h"
#include "tracing/call_description.h"
#include "tracing/dynamic_scalars.h"
#include "tracing/failed_trace.h"
#include "tracing/graph_capture.h"
#include "tracing/prepare.h"
#include "tracing/repeat_marks.h"
#include "tracing/shared_buffers.h"
#include "tracing/stream_graph_recorder.h"
#include "tracing/streams.h"

namespace fuse {

RecordOutcome TraceBuilder::record(
    OpenTrace& trace, const BoxedCall& call, torch::jit::Stack* stack, bool may_run_uncompiled) {
  switch_device(trace, std::max<int8_t>(device_of(call.arguments).index(), 0));
  forget_if_due(trace);
  TrieNode* node = nullptr;
  RecordOutcome outcome;
  try {
    const CallKey& key = encoder_.encode(trace, call.info, call.arguments);
    if (ends_piece(trace, key)) [[unlikely]] {
      encoder_.undo(trace);
      cut_trace(trace, CutReason::RepeatMark);
      encoder_.encode(trace, call.info, call.arguments);
    }
    if (trace.operations == 0) {
      trace.begins_with = key.shape_hash;
    }
    if (trace.graph == nullptr && tiers.begins_uncompiled(trace, key, call, may_run_uncompiled)) {
      outcome.as = RecordOutcome::As::Uncompiled;
    } else {
      node = find_child(trace, key, call);
      if (node != nullptr) {
        ++stats.known;
      } else if (Refusal refusal = add_child(trace, key, call, node)) {
        outcome = {RecordOutcome::As::Fallback, *std::move(refusal)};
      }
    }
  } catch (...) {
    encoder_.undo(trace);
    throw;
  }
  if (node == nullptr) {
    encoder_.undo(trace);
    if (outcome.as == RecordOutcome::As::Uncompiled) {
      begin_uncompiled(trace);
      return outcome;
    }
    trace.break_capture_here("one of its operations runs on the host");
    return outcome;
  }
  if (!has_room(node->nbytes)) [[unlikely]] {
    encoder_.undo(trace);
    refuse_memory(node->nbytes, "aten::" + call.info.name);
  }
  bind_call(trace, *node, encoder_.key(), call.op, stack);
  advance(trace, node);
  return outcome;
}

bool TraceBuilder::ends_piece(OpenTrace& trace, const CallKey& key) const {
  return trace.segment.again() != 0 && trace.operations != 0 &&
      key.shape_hash == trace.begins_with && trace.graph == nullptr && trace.capture == nullptr &&
      ++trace.came_again >= trace.segment.again();
}

void TraceBuilder::begin_uncompiled(OpenTrace& trace) {
  if (trace.operations != 0) { // compiled graphs, and what was recorded before them
    cut_trace(trace, CutReason::Tier);
  }
  tiers.begin(trace, limit);
}

TrieNode* TraceBuilder::find_child(
    const OpenTrace& trace, const CallKey& key, const BoxedCall& call) {
  c10::SmallVector<TrieNode*, 4> close;
  if (TrieNode* known = Trie::find(*trace.cursor, key, close)) {
    return known;
  }
  for (TrieNode* child : close) {
    if (generalise(*child, key, call, inference_)) {
      trie.change();
      return child;
    }
  }
  return nullptr;
}

Refusal TraceBuilder::add_child(
    OpenTrace& trace, const CallKey& key, const BoxedCall& call, TrieNode*& node) {
  auto made = Trie::make_node(*trace.cursor, key, call.info);
  if (Refusal refusal = describe(*made, key, call, trace.next_value(), inference_)) {
    return refusal;
  }
  Trie& calls = trace.graph != nullptr ? trace.graph->calls : trie;
  node = &calls.add(*trace.cursor, std::move(made));
  return std::nullopt;
}

void TraceBuilder::advance(OpenTrace& trace, c10::ArrayRef<TrieNode*> steps) {
  TrieNode& node = *steps.back();
  node.last_used = trace.serial;
  trace.first = trace.operations == 0 ? steps.front() : trace.first;
  trace.cursor = &node;
  trace.operations += steps.size();
  stats.operations += steps.size();
  if (trace.graph != nullptr) {
    return;
  }
  if (trace.capture != nullptr) {
    capture_step(trace, node, encoder_.key());
    return;
  }
  if (trace.mark_at != 0 && trace.operations >= trace.mark_at) {
    node.cut_after = true;
    trace.mark_at = 0;
  }
  if (mode.load(std::memory_order_relaxed) == Mode::Fused && node.cut_after) {
    cut_trace(trace, CutReason::RepeatMark);
  } else if (!cut_if_full(trace)) {
    const auto point = std::find_if(steps.rbegin(), steps.rend(), [](const TrieNode* step) {
      return step->speculation != nullptr;
    });
    if (point != steps.rend()) {
      speculator_.start(trace, **point);
    }
  }
}

bool TraceBuilder::cut_if_full(OpenTrace& trace) {
  if (mode.load(std::memory_order_relaxed) != Mode::Fused) {
    cut_trace(trace, CutReason::EveryOperation);
    return true;
  }
  if (trace.operations >= limit) {
    learn_period(trace, limit);
    cut_trace(trace, CutReason::SizeBound);
    return true;
  }
  return false;
}

void TraceBuilder::switch_device(OpenTrace& trace, int8_t device) {
  if (device != trace.device) {
    cut_trace(trace, CutReason::DeviceChange);
    trace.device = device;
  }
}

void TraceBuilder::cut_trace(OpenTrace& trace, CutReason reason) {
  refuse_in_graph(trace, reason);
  if (trace.operations == 0) {
    tiers.end(trace); // else what is cut is a call of one that was recorded
    begin_trace(trace);
    return;
  }
  free_dead_buffers();
  const PlanFor planned = run_trace(trace, reason);
  tiers.hand_on(trace, planned);
  ++stats.traces;
  ++stats.cuts[static_cast<size_t>(reason)];
  if (reason != CutReason::SizeBound) {
    trace.mark_at = 0; // the stream has ended by itself: there is no endless loop to mark
  }
  if (reason != CutReason::RepeatMark && !trace.segment.goes_on()) {
    trace.segment.forget_loop();
  }
  begin_trace(trace);
}

void TraceBuilder::plan_trace(OpenTrace& trace) {
  std::vector<int32_t> live = trace.live_values();
  if (!live.empty()) {
    GilGuard gil;
    drain_releases();
    plans_.plan_for(trace, std::move(live), true);
  }
}

PlanFor TraceBuilder::run_trace(OpenTrace& trace, CutReason reason) {
  std::vector<int32_t> live = trace.live_values();
  PlanFor planned{nullptr, !live.empty()};
  if (live.empty()) {
    return planned;
  }
  GilGuard gil;
  drain_releases();
  try {
    planned = plans_.plan_for(trace, std::move(live));
    plans_.execute(trace, *planned.plan, reason);
    if (tiers.decides()) {
      PlanRunner::look_for_executables(*planned.plan);
    }
  } catch (python_error& error) {
    error.restore();
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
      throw_python_error(); // an interrupt: the trace stays, and the next cut tries again
    }
    if (std::exception_ptr failed = recover(trace)) {
      begin_trace(trace);
      std::rethrow_exception(std::move(failed));
    }
  }
  return planned;
}

void TraceBuilder::begin_trace(OpenTrace& trace) {
  speculator_.drop(trace);
  free_dead_buffers();
  const bool crowded = plans_.take_crowded();
  if (crowded || trie.size() > most_nodes) {
    mark_open_traces(serials_ + 1);
    trie.prune(std::min(most_nodes, trie.size()) / 2);
    ++stats.prunes;
  }
  trace.begin(trie.root(), ++serials_);
}

void TraceBuilder::begin_stream(OpenTrace& trace) {
  trace.cursor = &trie.root();
  trace.serial = ++serials_;
  trace.place = {};
  for (OpenTrace* other : Streams::global().all()) {
    if (other->state.load(std::memory_order_acquire) != OpenTrace::State::Left) {
      continue;
    }
    if (other->cursor != nullptr) {
      drop_graph(*this, *other); // its thread captures no more
      try {
        cut_trace(*other, CutReason::OtherStream);
      } catch (const std::exception&) {
        if (other->operations != 0) {
          throw; // an interrupt: the trace stays
        }
        // It failed: who reads what it was to make is told why.
      }
      other->capture.reset();
      other->mark_at = 0;
    }
    other->state.store(OpenTrace::State::Free, std::memory_order_release);
  }
}

void TraceBuilder::cut_every(CutReason reason) {
  std::exception_ptr failed;
  for (OpenTrace* trace : Streams::global().all()) {
    if (trace->cursor == nullptr || trace->graph != nullptr) { // what is captured runs later
      continue;
    }
    try {
      cut_trace(*trace, reason);
    } catch (const std::exception&) {
      if (trace->operations != 0) {
        throw; // an interrupt: the trace stays, and so do those after it
      }
      failed = failed ? failed : std::current_exception();
    }
  }
  if (failed) {
    std::rethrow_exception(failed);
  }
}

void TraceBuilder::forget_if_due(const OpenTrace& trace) {
  if (forgets_soon_.load(std::memory_order_relaxed) && trace.operations == 0 &&
      trace.capture == nullptr && trace.graph == nullptr) [[unlikely]] {
    forget();
  }
}

void TraceBuilder::forget() {
  forgets_soon_.store(false, std::memory_order_relaxed);
  cut_every(CutReason::ModeChange);
  trie.forget();
  ++forgotten_;
  tiers.forget();
  for (OpenTrace* trace : Streams::global().all()) {
    if (trace->cursor != nullptr && trace->graph == nullptr) {
      trace->cursor = &trie.root();
    }
  }
}

} // namespace fuse
