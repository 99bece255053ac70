// Recording a compiled graph for the first time at its place: call by call, and what came of it.
#include "recorder/compiled.h"

#include <algorithm>

#include "recorder/lock.h"
#include "recorder/recorder.h"

namespace fuse {

namespace {

uint32_t input_of(const std::vector<Capture::Before>& inputs, const Buffer* buffer) {
  for (size_t at = 0; at < inputs.size(); ++at) {
    if (inputs[at].buffer != nullptr && inputs[at].buffer == buffer) {
      return static_cast<uint32_t>(at);
    }
  }
  return Stretch::LeafOf::kNone;
}

Stretch::Output output_over(const at::Tensor& tensor, Stretch::Output::Kind kind, uint32_t index) {
  Stretch::Output output;
  output.kind = kind;
  output.index = index;
  output.dtype = tensor.scalar_type();
  output.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  output.strides.assign(tensor.strides().begin(), tensor.strides().end());
  output.offset = tensor.storage_offset();
  return output;
}

} // namespace

bool Recorder::begin_capture(const CompiledGraph& graph, const std::vector<GraphInput>& inputs) {
  Lock lock(*this);
  auto capture = std::make_unique<Capture>();
  if (!prepare_graph(graph, inputs, capture->key)) {
    return false;
  }
  capture->thread = std::this_thread::get_id();
  capture->serial = open_->serial;
  capture->from = open_->cursor;
  capture->values = open_->owner.size();
  capture->leaves = open_->leaves.size();
  for (const GraphInput& input : inputs) {
    Capture::Before& before = capture->inputs.emplace_back();
    if (input.kind == GraphInput::Kind::Device) {
      before.buffer = Buffer::of(input.tensor);
      before.value = before.buffer->trace == open_->serial ? before.buffer->value : -1;
      before.nbytes = before.buffer->nbytes;
    }
  }
  open_->capture = std::move(capture);
  return true;
}

void Recorder::break_capture(const char* why) {
  if (open_->capture != nullptr && open_->capture->broken == nullptr) {
    open_->capture->broken = why;
  }
}

void Recorder::capture_step(TrieNode& node) {
  if (open_->capture->thread != std::this_thread::get_id()) {
    break_capture("another thread recorded meanwhile");
    return;
  }
  open_->capture->steps.push_back({&node, {call_.scalars.begin(), call_.scalars.end()}});
}

std::string Recorder::end_capture(
    CompiledGraph* graph,
    const std::vector<GraphInput>& inputs,
    const std::vector<GraphOutput>& outputs) {
  Lock lock(*this);
  std::unique_ptr<Capture> capture = std::move(open_->capture);
  if (capture == nullptr || graph == nullptr) {
    return "";
  }
  Stretch stretch;
  const char* broken = capture->broken;
  if (broken == nullptr && capture->serial != open_->serial) {
    broken = "the trace was cut meanwhile";
  }
  if (broken == nullptr) {
    broken = read_leaves(*capture, stretch);
  }
  if (broken == nullptr) {
    broken = read_inputs(*capture, inputs, stretch);
  }
  if (broken == nullptr) {
    broken = read_outputs(*capture, inputs, outputs, stretch);
  }
  if (broken != nullptr) {
    finish_capture();
    return broken;
  }
  read_steps(*capture, inputs, stretch);
  stretch.from = capture->from;
  stretch.key = std::move(capture->key);
  stretch.epoch = epoch_;
  stretch.values = static_cast<int32_t>(open_->owner.size());
  graph->add(std::move(stretch));
  finish_capture();
  return "";
}

void Recorder::finish_capture() {
  // What calls in a capture are not cut by.
  if (open_->operations == 0) {
    return;
  }
  if (mode() != Mode::Fused) {
    cut_locked(CutReason::EveryOperation);
  } else if (open_->operations >= limit_) {
    learn_period();
    cut_locked(CutReason::SizeBound);
  }
}

const char* Recorder::read_leaves(const Capture& capture, Stretch& stretch) const {
  for (size_t at = capture.leaves; at < open_->leaves.size(); ++at) {
    const Leaf& leaf = open_->leaves[at];
    const uint32_t input = input_of(capture.inputs, leaf.buffer);
    if (input == Stretch::LeafOf::kNone && leaf.array.defined()) {
      return "it reads a tensor that is none of its inputs";
    }
    stretch.leaves.push_back({input, leaf.value, leaf.layout});
  }
  return nullptr;
}

const char* Recorder::read_inputs(
    const Capture& capture, const std::vector<GraphInput>& inputs, Stretch& stretch) const {
  for (size_t at = 0; at < inputs.size(); ++at) {
    const Capture::Before& before = capture.inputs[at];
    if (before.buffer == nullptr || input_of(capture.inputs, before.buffer) != at) {
      continue; // no tensor of the device, or an earlier input's memory
    }
    Buffer* buffer = Buffer::of(inputs[at].tensor);
    if (buffer != before.buffer || buffer->nbytes != before.nbytes) {
      return "it gives an input other memory";
    }
    if (buffer->trace != open_->serial) {
      continue; // not read
    }
    int32_t value = before.value;
    for (const Stretch::LeafOf& leaf : stretch.leaves) {
      if (leaf.input == at) {
        value = leaf.value;
      }
    }
    if (buffer->value != value) {
      stretch.written.push_back({static_cast<uint32_t>(at), buffer->value, buffer->layout});
    }
  }
  return nullptr;
}

const char* Recorder::read_outputs(
    const Capture& capture,
    const std::vector<GraphInput>& inputs,
    const std::vector<GraphOutput>& outputs,
    Stretch& stretch) const {
  using Kind = Stretch::Output::Kind;
  std::vector<const Buffer*> buffers; // of what it made
  for (const GraphOutput& output : outputs) {
    if (output.kind == GraphOutput::Kind::Nothing) {
      stretch.outputs.emplace_back();
      continue;
    }
    if (output.kind == GraphOutput::Kind::Number) {
      Stretch::Output& spec = stretch.outputs.emplace_back();
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
      stretch.outputs.push_back(
          output_over(tensor, Kind::Input, static_cast<uint32_t>(same - inputs.begin())));
      continue;
    }
    const Buffer* buffer = Buffer::of(tensor);
    const uint32_t input = input_of(capture.inputs, buffer);
    if (tensor.is_conj() || tensor.is_neg()) {
      return "one of its results is conjugated or negated lazily";
    }
    if (input != Stretch::LeafOf::kNone) {
      stretch.outputs.push_back(output_over(tensor, Kind::OfInput, input));
      continue;
    }
    auto found = std::find(buffers.begin(), buffers.end(), buffer);
    const auto index = static_cast<uint32_t>(found - buffers.begin());
    if (found == buffers.end()) {
      const bool made = buffer->trace == open_->serial && buffer->pending &&
          static_cast<size_t>(buffer->value) >= capture.values;
      if (!made && (buffer->pending || buffer->array.defined())) {
        return "one of its results is older than its call, or made on the host";
      }
      buffers.push_back(buffer);
      stretch.made.push_back({made ? buffer->value : -1, buffer->nbytes, buffer->layout});
    }
    stretch.outputs.push_back(output_over(tensor, Kind::OfMade, index));
  }
  return nullptr;
}

void Recorder::read_steps(
    const Capture& capture, const std::vector<GraphInput>& inputs, Stretch& stretch) {
  using Kind = Stretch::Word::Kind;
  for (const Capture::Step& step : capture.steps) {
    stretch.steps.push_back(step.node);
    for (size_t at = 0; at < step.scalars.size(); ++at) {
      const ScalarBits& scalar = step.scalars[at];
      Stretch::Word word{Kind::Constant, scalar.bits};
      for (size_t input = 0; scalar.host != nullptr && input < inputs.size(); ++input) {
        if (inputs[input].kind == GraphInput::Kind::Host &&
            inputs[input].tensor.unsafeGetTensorImpl() == scalar.host) {
          word = {Kind::Input, input};
          stretch.places.push_back({static_cast<uint32_t>(input), step.node, at});
        }
      }
      if (step.node->scalars[at].dynamic) {
        stretch.words.push_back(word);
      }
    }
    if (step.node->random_blocks != 0) {
      stretch.words.push_back({Kind::Draw, step.node->random_blocks});
    }
  }
}

} // namespace fuse
