// Stream graphs: what a stream records from the begin to the end of a capture, to be run again.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>
#include <string>
#include <vector>

#include "tracing/cut_reason.h"
#include "tracing/open_trace.h"
#include "tracing/trie.h"

namespace fuse {

// The calls that a stream recorded while it captured, on a trie of their own, and what they do to
// buffers. Nothing of it ran then: each run is one trace, on the present values of the buffers that
// it reads, with its results in the same ones. Buffers live as long as the graph. Under the
// recorder's mutex but for the destructor.
struct StreamGraph {
  struct Read {
    Buffer* buffer; // null: another stream overwrote it, and the value is always this one
    int32_t value;
    Array array;
    uint32_t layout;
  };
  struct Made { // a buffer with a value of the graph's at its end
    Buffer* buffer;
    int32_t value;
    uint32_t layout;
  };
  struct Draw { // numbers drawn anew for each run
    size_t word;
    at::Generator generator;
    uint32_t blocks;
  };

  StreamGraph() = default;
  ~StreamGraph();
  StreamGraph(const StreamGraph&) = delete;
  StreamGraph& operator=(const StreamGraph&) = delete;

  // The graph reads or makes the buffer, which has memory from now on, if only zeros: it may have a
  // value by the time that the graph runs.
  void hold(Buffer& buffer);
  bool captured() const {
    return end != nullptr;
  }

  Trie calls;
  TrieNode* end = nullptr; // the last of them
  TrieNode* first = nullptr;
  size_t operations = 0;
  size_t values = 0; // value numbers in use
  uint64_t generation = 0; // of its plans: TraceBuilder::generation
  int8_t device = 0;
  std::vector<Buffer*> held;
  std::vector<Read> reads;
  std::vector<Made> made;
  std::vector<Draw> draws;
  std::vector<uint64_t> words; // numbers that vary elsewhere, and room for those that are drawn
  std::string broken; // why the capture is none
};

// Throws that the graph which the stream captures cannot hold this; nothing where it captures none.
void refuse_in_graph(OpenTrace& trace, const std::string& what);
void refuse_in_graph(OpenTrace& trace, CutReason reason);
// The buffer has memory that the graph can read, if only zeros.
void give_memory(Buffer& buffer);
// The next words of the trace are drawn for each run.
void note_draw(OpenTrace& trace, const at::Generator& generator, uint32_t blocks);
// What the trace holds becomes the graph's, as far as it is not on its trie already.
void read_graph(OpenTrace& trace, StreamGraph& graph);
// Buffers are again what they were before the trace; what it was to make has no value.
void undo_trace(OpenTrace& trace);
// The trace, in which nothing is recorded, holds the graph's calls.
void put_graph(OpenTrace& trace, const std::shared_ptr<StreamGraph>& graph);

} // namespace fuse
