// Records the stream of operations into a trace, and cuts traces.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/buffer.h"
#include "recorder/any_shape.h"
#include "recorder/compiled.h"
#include "recorder/inferences.h"
#include "recorder/open_trace.h"
#include "recorder/streams.h"
#include "recorder/trie.h"
#include "tiering/policy.h"
#include "uncompiled/unboxed_operands.h"

namespace fuse {

// A number in a 0-d CPU tensor, as the packed array holds it: a double's bits, or an integer.
uint64_t host_bits(const at::Tensor& tensor);

enum class Mode : uint8_t { Debug, Strict, Fused };

// The closed list of reasons for a cut; names in recorder.cpp.
enum class CutReason : uint8_t {
  HostRead,
  Synchronize,
  OptimizerStep,
  RepeatMark,
  HostFallback,
  Collective,
  ModeChange,
  SizeBound,
  EveryOperation,
  DeviceChange,
  Compiled,
  OtherStream,
  Count
};
const char* cut_reason_name(CutReason reason);

// Why a call runs on the host: the backend cannot, or its segment runs uncompiled.
enum class HostRun : uint8_t { Fallback, Uncompiled };

struct RecorderStats {
  uint64_t operations = 0, known = 0, traces = 0, nodes = 0, uncompiled = 0, prunes = 0;
  uint64_t started_early = 0, started_in_vain = 0; // traces begun early: with their plan, or not
  uint64_t uncompiled_segments = 0;
  std::array<uint64_t, static_cast<size_t>(CutReason::Count)> cuts{};
};

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
  bool tried = false, endless = false; // now
  // Of the entry that spent most; whether what is recorded of it comes by again.
  bool returns = true;
  tiering::Nanoseconds spent = 0, price = 0;
};

// A segment that ran while somebody watched; of a kind of number 0 if the policy was not asked.
struct Ran {
  uint64_t kind = 0, calls = 0;
  tiering::Nanoseconds took = 0;
  PyRef plan; // none if it ran uncompiled
};

// How far a stream has come: which trace it is recording, and its calls so far.
struct Position {
  OpenTrace* stream = nullptr;
  uint64_t trace = 0;
  size_t operations = 0;
};

class Recorder {
 public:
  static Recorder& global();

  // The boxed kernel: records the call on top of `stack`, or runs it on the host.
  void record(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack);
  // Runs a call on the host, not as a fallback: see run_on_host.
  bool run_uncompiled(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack);
  // Whether the calling thread's segment runs uncompiled. Without the mutex.
  static bool follows_uncompiled() {
    const OpenTrace* here = Streams::here_if_any();
    return here != nullptr && here->segment.goes_on();
  }
  // Whether the next call does so too: it is recorded alone where the CPU does not compute it, or
  // where the segment is too long.
  bool goes_on_uncompiled(
      const c10::OperatorHandle& op, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);
  // Why one runs uncompiled that has not been boxed, none if it is to be recorded.
  std::optional<HostRun> runs_unboxed(const OpInfo& info, const UnboxedOperands& operands);
  // Hands on what the calling thread's stream has recorded. No effect where nothing is recorded.
  void cut(CutReason reason);
  // The same of every stream; the first error is raised once all have been.
  void cut_all(CutReason reason);
  Position position(OpenTrace& stream);
  // Hands on what a stream had recorded there, if it has not been.
  void cut_at(const Position& position, CutReason reason);
  // The concrete array of a buffer, after a cut if its value is pending.
  Array materialise(Buffer* buffer, CutReason reason);
  // Replaces the buffer's value by a concrete one.
  void assign(Buffer* buffer, Array array, uint32_t layout);
  // Whether the next known stream of more than this many operations is cut.
  void set_limit(size_t operations);
  // How many calls the trie of known streams may hold.
  void set_most_nodes(size_t nodes);
  // A host read ends what runs uncompiled, if anything does.
  void end_uncompiled();
  // tiers.cpp: how tiers are chosen from now on, what is known of them, and whether nothing is
  // being tried or compiled.
  void set_tier(tiering::Setting setting);
  std::vector<TierReport> tiers();
  // What ran since it was called last, if somebody watched; from now on `watch` says who does.
  std::vector<Ran> watch(tiering::Watch watch);
  bool is_settled();
  void set_mode(Mode mode);
  Mode mode() const {
    return mode_.load(std::memory_order_relaxed);
  }
  // compiled.cpp, capture.cpp: graphs of torch.compile. Records one whose calls are known at once;
  // false where they are not.
  bool replay(
      const CompiledGraph& graph,
      const std::vector<GraphInput>& inputs,
      std::vector<GraphOutput>& outputs);
  // The calls that this thread makes until end_capture are the graph's; false where they are to be
  // made without one.
  bool begin_capture(const CompiledGraph& graph, const std::vector<GraphInput>& inputs);
  // Keeps them for replay; why that cannot be, else nothing. Without a graph the capture is
  // dropped.
  std::string end_capture(
      CompiledGraph* graph,
      const std::vector<GraphInput>& inputs,
      const std::vector<GraphOutput>& outputs);
  RecorderStats stats();
  void reset_stats();
  // Drops every known stream.
  void forget();
  // The same where the next trace begins. Waits for nothing: whoever compiles beside calls it.
  void forget_soon() {
    forgets_soon_.store(true, std::memory_order_relaxed);
  }
  // Returns once no other thread is inside the recorder, or a moment later, in which threads come
  // to their next call and stop there; after some seconds in any case.
  void wait_until_left();

 private:
  class Lock;
  struct Operand {
    const at::Tensor* tensor;
    Buffer* buffer;
    bool first; // met for the first time in this trace
    bool initialised;
    int scalar; // position of its offset among the call's scalars
    uint32_t word; // position of its first word in the call's
  };
  struct Call {
    c10::SmallVector<uint64_t, 128> words;
    c10::SmallVector<ScalarBits, 16> scalars;
    c10::SmallVector<Operand, 16> operands;
    uint64_t shape_hash = 0; // the call without value numbers: what periods are found with
    uint64_t rank_hash = 0; // that without sizes too: what changing shapes are counted by
    uint32_t fresh = 0; // operands that became leaves with this call
    void clear();
  };

  // encode.cpp: the call as a key
  void encode(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);
  void encode_value(const c10::IValue& value, OpInfo::Kind kind);
  void encode_tensor(const at::Tensor& tensor);
  void encode_host_tensor(const at::Tensor& tensor);
  void undo_encode();
  // Whether the trace has met the buffer; notes in the buffer its place in this trace if it has.
  // What another stream's trace is to make of it is handed on first.
  bool finds(Buffer& buffer) {
    return open_->holds(buffer) || finds_elsewhere(buffer);
  }
  bool finds_elsewhere(Buffer& buffer);

  // recorder.cpp: the known path
  bool try_record(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack);
  TrieNode* find_child(
      const c10::OperatorHandle& op, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);
  void bind(TrieNode& node, const c10::OperatorHandle& op, torch::jit::Stack* stack);
  void write_buffer(Buffer* buffer, uint32_t layout);
  at::Tensor make_tensor(const NewTensor& spec);
  void draw_random(const TrieNode& node, c10::ArrayRef<c10::IValue> arguments);

  // compiled.cpp
  bool meet_inputs(const std::vector<GraphInput>& inputs, std::vector<uint64_t>& key);
  bool prepare_graph(
      const CompiledGraph& graph,
      const std::vector<GraphInput>& inputs,
      std::vector<uint64_t>& key);
  void meet_leaves(const Stretch& stretch, const std::vector<GraphInput>& inputs);
  void push_words(const Stretch& stretch, const std::vector<GraphInput>& inputs);
  void make_outputs(
      const Stretch& stretch,
      const std::vector<GraphInput>& inputs,
      std::vector<GraphOutput>& outputs);
  void go_on(const std::vector<TrieNode*>& steps);
  // Says why what is captured cannot be replayed; the second only if this thread captures.
  void break_capture(const char* why);
  void break_capture_here(const char* why) {
    if (open_->capture != nullptr && open_->capture->thread == std::this_thread::get_id()) {
      break_capture(why);
    }
  }
  void capture_step(TrieNode& node);
  void finish_capture();
  // What the stretch holds of leaves, inputs, results and steps; or why there is none.
  const char* read_leaves(const Capture& capture, Stretch& stretch) const;
  const char* read_inputs(
      const Capture& capture, const std::vector<GraphInput>& inputs, Stretch& stretch) const;
  const char* read_outputs(
      const Capture& capture,
      const std::vector<GraphInput>& inputs,
      const std::vector<GraphOutput>& outputs,
      Stretch& stretch) const;
  static void read_steps(
      const Capture& capture, const std::vector<GraphInput>& inputs, Stretch& stretch);

  // tiers.cpp
  static tiering::Policy make_policy();
  bool may_run_uncompiled() const {
    return mode() == Mode::Fused && !AnyShape::here();
  }
  // Whether a segment that begins with this call runs uncompiled.
  bool begins_uncompiled(const c10::OperatorHandle& op, const OpInfo& info);
  // Counts a call of one, or ends it after too many.
  bool goes_on_uncompiled(const OpInfo& info, const UnboxedOperands& operands);
  void end_segment();
  // Tells the policy what became of a recorded segment; without a plan nothing of it lives on.
  void hand_on_segment(CutReason reason, const Plan* plan, bool planned);
  // Tells it which executables have been made meanwhile.
  void look_at_pending();

  // generalise.cpp: numbers that vary
  bool generalise(
      TrieNode& child,
      const c10::OperatorHandle& op,
      const OpInfo& info,
      c10::ArrayRef<c10::IValue> arguments);

  // describe.cpp: a call never seen before
  TrieNode* add_child(
      const c10::OperatorHandle& op, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);
  bool describe(
      TrieNode& node,
      const c10::OperatorHandle& op,
      const OpInfo& info,
      c10::ArrayRef<c10::IValue> arguments);
  static void add_to_index(TrieNode& parent);
  static PyRef to_python(
      const c10::IValue& value, OpInfo::Kind kind, size_t& operand, size_t& scalar);
  PyRef operands_to_python();

  // infer.cpp: the metadata of its results, from PyTorch's meta kernels; false where there is none
  bool infer(
      TrieNode& node,
      const c10::OperatorHandle& op,
      const OpInfo& info,
      c10::ArrayRef<c10::IValue> arguments);
  bool infer_anew(
      TrieNode& node,
      const c10::OperatorHandle& op,
      const OpInfo& info,
      c10::ArrayRef<c10::IValue> arguments);
  bool run_on_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  Inferences::Key inference_key() const;
  // `meta` are the arguments on meta tensors, those of out= resized by inference.
  void infer_writes(
      TrieNode& node,
      const c10::OperatorHandle& op,
      const OpInfo& info,
      c10::ArrayRef<c10::IValue> arguments,
      const torch::jit::Stack& meta);
  void infer_resize(TrieNode& node, uint32_t operand, const at::Tensor& after) const;

  // cut.cpp
  void cut_locked(CutReason reason);
  // The same of another stream.
  void cut_stream(OpenTrace& stream, CutReason reason);
  void cut_every(CutReason reason);

  // several_streams.cpp
  // A stream's first trace begins; what threads that have ended recorded last is handed on.
  void begin_stream();
  // No trace but perhaps this one is to know the buffer any more, whose value is another now.
  void leave_to(OpenTrace* stream, Buffer& buffer);
  void overwrite_here(Buffer& buffer) {
    if (buffer.traces.load(std::memory_order_relaxed) > 1) {
      leave_to(open_, buffer);
    }
  }
  void settle_dead();
  std::vector<int32_t> live_values() const;
  std::vector<int32_t> donatable_leaves() const;
  Plan* find_plan(
      TrieNode& node, const std::vector<int32_t>& live, const std::vector<int32_t>& donatable);
  Plan* make_plan(TrieNode& node, std::vector<int32_t> live, std::vector<int32_t> donatable);
  // The calls that lead to a node, as the engine made them, and their nodes in reverse.
  static PyRef recorded_nodes(TrieNode& node, std::vector<TrieNode*>& path);
  void execute(Plan& plan, CutReason reason);
  PyRef leaf_arrays();
  PyObject* leaf_array(const Leaf& leaf) const;
  PyObject* leaf_if_any(const Leaf& leaf) const; // else None
  void keep_conversions(PyObject* arrays);
  PyRef packed_words() const;

  // ahead.cpp
  // Starts what the stream so far is known to lead to, while the program goes on.
  void start_ahead(TrieNode& node);
  // What was started of a plan, None if it was nothing; counts whether it was this plan.
  PyRef take_started(const Plan& plan);
  void drop_started();
  void count_in_vain(TrieNode& at);
  static void expect(const Plan& plan);

  void adopt(const Plan& plan, PyObject* arrays);
  static void give(Buffer& buffer, PyObject* array);
  // The trace failed: computes of it what can be; throws its error if that was not everything.
  void fail();
  bool rescue(std::string& why);
  void abandon(const std::string& why);
  void start_trace();
  void forget_locked();
  // Forgets what no trace has come by for longest, until this many nodes are left.
  void prune(size_t most);
  // What the open traces stand on is in use.
  void mark_open_traces();
  // A number of a call that open traces hold begins to vary.
  void vary_in_open_traces(const TrieNode& node, size_t place);
  void learn_period();

  std::mutex mutex_;
  std::atomic<Mode> mode_{Mode::Fused};
  size_t limit_ = 16384;
  size_t most_nodes_ = 500000; // about 500 bytes each, and a Python description
  std::atomic<bool> forgets_soon_{false};
  bool crowded_ = false; // whether plans hold too many executables
  std::atomic<uint64_t> uncompiled_{0};
  HostRun host_run_ = HostRun::Fallback; // why the last call runs on the host, if it does
  // A plan whose executables are being made, and the segment that waits for them.
  struct Pending {
    uint64_t kind, first;
    PyRef plan;
  };
  tiering::Policy policy_ = make_policy();
  std::vector<Pending> pending_;
  bool watched_ = false;
  std::vector<Ran> ran_; // while it is
  tiering::Nanoseconds looked_ = 0; // at them, last
  std::unique_ptr<TrieNode> root_;
  uint64_t serials_ = 0; // traces begun
  OpenTrace* open_ = nullptr; // of the stream that the holder of the mutex records on
  uint64_t epoch_ = 1; // changes where calls are forgotten, or numbers of known ones begin to vary
  Call call_;
  Inferences inferences_;
  std::string refusal_; // why the last call could not be described
  RecorderStats stats_;

 public:
  Recorder();
};

} // namespace fuse
