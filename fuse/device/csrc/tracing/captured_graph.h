// Captured graphs of torch.compile: what a graph's calls do to a trace, done at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/buffer.h"
#include "tracing/record_only.h"
#include "tracing/trie_node.h"

namespace fuse {

// One input of a graph: a tensor of the device, a number on the host (a 0-d CPU tensor, or one of
// Python's), or nothing.
struct GraphInput {
  enum class Kind : uint8_t { Nothing, Number, Host, Device } kind = Kind::Nothing;
  at::Tensor tensor;
  uint64_t bits = 0; // of a number, and of a CPU tensor's
};

// One result: a tensor of the device, an input itself, a number that follows from sizes, or
// nothing; Other is whatever else.
struct GraphOutput {
  enum class Kind : uint8_t { Nothing, Tensor, Input, Number, Other } kind = Kind::Nothing;
  at::Tensor tensor;
  uint32_t input = 0;
  int64_t number = 0;
};

// The calls of a graph at one place of the trie, once they have been recorded there: where they
// lead, and everything that recording them does to buffers, leaves and numbers. A later call of the
// graph at this place, on inputs that are alike, replays it without a call for each operation.
struct CapturedGraph {
  struct LeafOf {
    static constexpr uint32_t kNone = UINT32_MAX; // memory that the graph made and nothing wrote
    uint32_t input;
    int32_t value;
    uint32_t layout;
  };
  struct Made { // a storage that the graph made
    int32_t value; // -1: nothing was written to it
    size_t nbytes;
    uint32_t layout;
  };
  struct Written { // an input that the graph overwrote
    uint32_t input;
    int32_t value;
    uint32_t layout;
  };
  struct Output {
    enum class Kind : uint8_t { Nothing, Number, Input, OfInput, OfMade } kind = Kind::Nothing;
    uint32_t index = 0; // of the input, or among `made`
    c10::ScalarType dtype = c10::ScalarType::Float;
    c10::SmallVector<int64_t, 5> sizes, strides;
    int64_t offset = 0; // or the number
  };
  struct Word { // one of the numbers that vary, in order, or a draw of random numbers
    enum class Kind : uint8_t { Constant, Input, Draw } kind = Kind::Constant;
    uint64_t value = 0; // bits, an input's number, or blocks
  };
  struct Place { // where a number on the host is read
    uint32_t input;
    TrieNode* node;
    size_t scalar;
  };

  TrieNode* from = nullptr;
  std::vector<uint64_t> key; // what the inputs are
  uint64_t epoch = 0; // of the trie
  std::vector<TrieNode*> steps;
  int32_t values = 0; // value numbers in use at its end
  std::vector<LeafOf> leaves;
  std::vector<Made> made;
  std::vector<Written> written;
  std::vector<Output> outputs;
  std::vector<Word> words;
  std::vector<Place> places;

  TrieNode* to() const {
    return steps.empty() ? from : steps.back();
  }
  // Whether it holds for these inputs, which the key says are alike: their numbers may not be.
  bool admits(const std::vector<GraphInput>& inputs) const;
};

// What became of a graph that was to be replayed.
enum class Replay : uint8_t {
  Recorded,
  Waits, // its executables are being made: its calls are to follow, and run uncompiled till it ends
  Unknown, // at this place, or in this state
};

// A compiled graph, and what has been captured of it at the places where it was called.
class CompiledGraph {
 public:
  // What is captured of one graph beyond which all is forgotten: a program that never calls it at
  // the same place twice must not fill the memory.
  static constexpr size_t kMost = 256;

  // `alone`: its calls begin a trace of their own, unless the present one holds graphs that are
  // not.
  explicit CompiledGraph(bool alone) : alone_(alone) {}
  bool alone() const {
    return alone_;
  }
  const CapturedGraph* find(
      const TrieNode* from,
      const std::vector<uint64_t>& key,
      uint64_t epoch,
      const std::vector<GraphInput>& inputs) const;
  void add(CapturedGraph captured);

 private:
  static uint64_t hash(const TrieNode* from, const std::vector<uint64_t>& key);
  bool alone_;
  std::unordered_multimap<uint64_t, CapturedGraph> captured_;
};

// A graph's calls while they are recorded for the first time at their place.
struct GraphCapture {
  struct Step {
    TrieNode* node;
    std::vector<ScalarBits> scalars;
  };
  struct Before { // an input's buffer as it was
    Buffer* buffer = nullptr;
    int32_t value = -1; // in this trace; -1 if it had not been met
    size_t nbytes = 0;
  };

  std::thread::id thread;
  RecordOnly recorded; // its calls do not run uncompiled
  uint64_t serial = 0;
  TrieNode* from = nullptr;
  std::vector<uint64_t> key;
  size_t values = 0, leaves = 0;
  std::vector<Before> inputs;
  std::vector<Step> steps;
  const char* broken = nullptr; // why it is none
};

} // namespace fuse
