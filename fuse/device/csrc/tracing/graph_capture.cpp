#include "tracing/graph_capture.h"

#include <algorithm>

namespace fuse {

namespace {

uint32_t input_of(const std::vector<GraphCapture::Before>& inputs, const Buffer* buffer) {
  for (size_t at = 0; at < inputs.size(); ++at) {
    if (inputs[at].buffer != nullptr && inputs[at].buffer == buffer) {
      return static_cast<uint32_t>(at);
    }
  }
  return CapturedGraph::LeafOf::kNone;
}

CapturedGraph::Output output_over(
    const at::Tensor& tensor, CapturedGraph::Output::Kind kind, uint32_t index) {
  CapturedGraph::Output output;
  output.kind = kind;
  output.index = index;
  output.dtype = tensor.scalar_type();
  output.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  output.strides.assign(tensor.strides().begin(), tensor.strides().end());
  output.offset = tensor.storage_offset();
  return output;
}

const char* read_leaves(
    const OpenTrace& trace, const GraphCapture& capture, CapturedGraph& captured) {
  for (size_t at = capture.leaves; at < trace.leaves.size(); ++at) {
    const Leaf& leaf = trace.leaves[at];
    const uint32_t input = input_of(capture.inputs, leaf.buffer);
    if (input == CapturedGraph::LeafOf::kNone && leaf.array.defined()) {
      return "it reads a tensor that is none of its inputs";
    }
    captured.leaves.push_back({input, leaf.value, leaf.layout});
  }
  return nullptr;
}

const char* read_inputs(
    const OpenTrace& trace,
    const GraphCapture& capture,
    const std::vector<GraphInput>& inputs,
    CapturedGraph& captured) {
  for (size_t at = 0; at < inputs.size(); ++at) {
    const GraphCapture::Before& before = capture.inputs[at];
    if (before.buffer == nullptr || input_of(capture.inputs, before.buffer) != at) {
      continue; // no tensor of the device, or an earlier input's memory
    }
    Buffer* buffer = Buffer::of(inputs[at].tensor);
    if (buffer != before.buffer || buffer->nbytes != before.nbytes) {
      return "it gives an input other memory";
    }
    if (buffer->trace != trace.serial) {
      continue; // not read
    }
    int32_t value = before.value;
    for (const CapturedGraph::LeafOf& leaf : captured.leaves) {
      if (leaf.input == at) {
        value = leaf.value;
      }
    }
    if (buffer->value != value) {
      captured.written.push_back({static_cast<uint32_t>(at), buffer->value, buffer->layout});
    }
  }
  return nullptr;
}

const char* read_outputs(
    const OpenTrace& trace,
    const GraphCapture& capture,
    const std::vector<GraphInput>& inputs,
    const std::vector<GraphOutput>& outputs,
    CapturedGraph& captured) {
  using Kind = CapturedGraph::Output::Kind;
  std::vector<const Buffer*> buffers; // of what it made
  for (const GraphOutput& output : outputs) {
    if (output.kind == GraphOutput::Kind::Nothing) {
      captured.outputs.emplace_back();
      continue;
    }
    if (output.kind == GraphOutput::Kind::Number) {
      CapturedGraph::Output& spec = captured.outputs.emplace_back();
      spec.kind = Kind::Number;
      spec.offset = output.number; // the key holds what it follows from
      continue;
    }
    if (output.kind != GraphOutput::Kind::Tensor || !output.tensor.is_privateuseone()) {
      return "one of its results is no tensor of the device";
    }
    const at::Tensor& tensor = output.tensor;
    auto same = std::find_if(inputs.begin(), inputs.end(), [&](const GraphInput& input) {
      return input.kind == GraphInput::Kind::Device && input.tensor.is_same(tensor);
    });
    if (same != inputs.end()) {
      captured.outputs.push_back(
          output_over(tensor, Kind::Input, static_cast<uint32_t>(same - inputs.begin())));
      continue;
    }
    const Buffer* buffer = Buffer::of(tensor);
    const uint32_t input = input_of(capture.inputs, buffer);
    if (tensor.is_conj() || tensor.is_neg()) {
      return "one of its results is conjugated or negated lazily";
    }
    if (input != CapturedGraph::LeafOf::kNone) {
      captured.outputs.push_back(output_over(tensor, Kind::OfInput, input));
      continue;
    }
    auto found = std::find(buffers.begin(), buffers.end(), buffer);
    const auto index = static_cast<uint32_t>(found - buffers.begin());
    if (found == buffers.end()) {
      const bool made = buffer->trace == trace.serial && buffer->pending &&
          static_cast<size_t>(buffer->value) >= capture.values;
      if (!made && (buffer->pending || buffer->array.defined())) {
        return "one of its results is older than its call, or made on the host";
      }
      buffers.push_back(buffer);
      captured.made.push_back({made ? buffer->value : -1, buffer->nbytes, buffer->layout});
    }
    captured.outputs.push_back(output_over(tensor, Kind::OfMade, index));
  }
  return nullptr;
}

void read_steps(
    const GraphCapture& capture, const std::vector<GraphInput>& inputs, CapturedGraph& captured) {
  using Kind = CapturedGraph::Word::Kind;
  for (const GraphCapture::Step& step : capture.steps) {
    captured.steps.push_back(step.node);
    for (size_t at = 0; at < step.scalars.size(); ++at) {
      const ScalarBits& scalar = step.scalars[at];
      CapturedGraph::Word word{Kind::Constant, scalar.bits};
      for (size_t input = 0; scalar.host != nullptr && input < inputs.size(); ++input) {
        if (inputs[input].kind == GraphInput::Kind::Host &&
            inputs[input].tensor.unsafeGetTensorImpl() == scalar.host) {
          word = {Kind::Input, input};
          captured.places.push_back({static_cast<uint32_t>(input), step.node, at});
        }
      }
      if (step.node->scalars[at].dynamic) {
        captured.words.push_back(word);
      }
    }
    if (step.node->random_blocks != 0) {
      captured.words.push_back({Kind::Draw, step.node->random_blocks});
    }
  }
}

} // namespace

void begin_capture(
    OpenTrace& trace, const std::vector<GraphInput>& inputs, std::vector<uint64_t> key) {
  auto capture = std::make_unique<GraphCapture>();
  capture->key = std::move(key);
  capture->thread = std::this_thread::get_id();
  capture->serial = trace.serial;
  capture->from = trace.cursor;
  capture->values = trace.owner.size();
  capture->leaves = trace.leaves.size();
  for (const GraphInput& input : inputs) {
    GraphCapture::Before& before = capture->inputs.emplace_back();
    if (input.kind == GraphInput::Kind::Device) {
      before.buffer = Buffer::of(input.tensor);
      before.value = trace.holds(*before.buffer) ? before.buffer->value : -1;
      before.nbytes = before.buffer->nbytes;
    }
  }
  trace.capture = std::move(capture);
}

void capture_step(OpenTrace& trace, TrieNode& node, const CallKey& key) {
  if (trace.capture->thread != std::this_thread::get_id()) {
    trace.break_capture("another thread recorded meanwhile");
    return;
  }
  trace.capture->steps.push_back({&node, {key.scalars.begin(), key.scalars.end()}});
}

const char* read_capture(
    const OpenTrace& trace,
    GraphCapture& capture,
    const std::vector<GraphInput>& inputs,
    const std::vector<GraphOutput>& outputs,
    CapturedGraph& captured) {
  if (capture.broken != nullptr) {
    return capture.broken;
  }
  if (capture.serial != trace.serial) {
    return "the trace was cut meanwhile";
  }
  if (const char* broken = read_leaves(trace, capture, captured)) {
    return broken;
  }
  if (const char* broken = read_inputs(trace, capture, inputs, captured)) {
    return broken;
  }
  if (const char* broken = read_outputs(trace, capture, inputs, outputs, captured)) {
    return broken;
  }
  read_steps(capture, inputs, captured);
  captured.from = capture.from;
  captured.key = std::move(capture.key);
  captured.values = trace.next_value();
  return nullptr;
}

} // namespace fuse
