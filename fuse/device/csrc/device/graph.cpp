// torch.accelerator.Graph: PyTorch's interface over stream graphs. It has one from 2.13 on.
#if __has_include(<ATen/core/GraphImplInterface.h>)

#include <ATen/core/GraphImplInterface.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>

#include "runtime/python_bridge.h"
#include "tracing/plan_runner.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

at::MempoolId_t new_pool() {
  static std::atomic<uint64_t> pools{0};
  return {++pools, 0};
}

// Modes that say what other threads may do have no meaning here: each records on its own stream.
// Memory is the device's one pool: a graph's buffers are its own, and `pool` is a name.
class GraphImpl final : public at::GraphImplInterface {
 public:
  explicit GraphImpl(const at::GraphImplArgs& args) : keeps_(args.keep_graph) {}

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode) override {
    TORCH_CHECK(graph_ == nullptr, "this graph has been captured; reset() it first");
    auto graph = std::make_shared<StreamGraph>();
    Recorder::global().begin_graph(graph);
    graph_ = std::move(graph);
    pool_ = pool == at::MempoolId_t{0, 0} ? new_pool() : pool;
  }
  void capture_end() override {
    TORCH_CHECK(graph_ != nullptr, "capture_end without a capture_begin");
    try {
      Recorder::global().end_graph(*graph_);
    } catch (...) {
      graph_ = graph_->captured() ? graph_ : nullptr;
      throw;
    }
  }
  // What is captured has been planned, and its executables found or begun, where the capture ended.
  void instantiate() override {
    require("instantiate");
    TORCH_CHECK(keeps_, "instantiate is for graphs made with keep_graph=True; others are at once");
  }
  void replay() override {
    require("replay");
    Recorder::global().run_graph(graph_);
  }
  void reset() override {
    graph_.reset();
    pool_ = {0, 0};
  }
  at::MempoolId_t pool() const override {
    require("pool");
    return pool_;
  }
  void enable_debug_mode() override {
    debugs_ = true;
  }
  void debug_dump(const std::string& path) override {
    require("debug_dump");
    TORCH_CHECK(debugs_, "debug_dump writes nothing unless enable_debug_mode() was called");
    std::ofstream file(path);
    file << text();
    TORCH_CHECK(file.good(), "debug_dump cannot write ", path);
  }

 private:
  void require(const char* what) const {
    TORCH_CHECK(
        graph_ != nullptr && graph_->captured(), what, " of a graph that has not been captured");
  }
  // The graph in the language of Graphviz.
  std::string text() const {
    GilGuard gil;
    std::vector<TrieNode*> path;
    PyRef nodes = recorded_nodes(*graph_->end, path);
    PyRef found = call_engine("drawn", pack(std::move(nodes)));
    return checked_text(PyUnicode_AsUTF8(found.get()));
  }
  static std::string checked_text(const char* text) {
    return text == nullptr ? (throw_python_error(), "") : text;
  }

  bool keeps_;
  bool debugs_ = false;
  at::MempoolId_t pool_{0, 0};
  std::shared_ptr<StreamGraph> graph_;
};

using at::GraphImplRegistry;
using at::RegistererGraphImplRegistry;
REGISTER_GRAPH_IMPL(TPU, GraphImpl) // the device's name in PyTorch, in capitals

} // namespace

} // namespace fuse

#endif
