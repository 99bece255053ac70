#include "tracing/graph_replay.h"

#include "runtime/generator.h"
#include "tracing/shared_buffers.h"

namespace fuse {

namespace {

enum InputTag : uint64_t { kNoInput = 1, kNumberInput, kHostInput, kDeviceInput };
constexpr uint64_t kStranger = UINT32_MAX; // the trace has not met it yet

at::Tensor seen_through(c10::Storage storage, const CapturedGraph::Output& spec) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(spec.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides, spec.offset);
  return tensor;
}

void meet_leaves(
    OpenTrace& trace, const CapturedGraph& captured, const std::vector<GraphInput>& inputs) {
  trace.owner.resize(static_cast<size_t>(captured.values), nullptr);
  for (const CapturedGraph::LeafOf& leaf : captured.leaves) {
    if (leaf.input == CapturedGraph::LeafOf::kNone) {
      trace.leaves.push_back({leaf.value, Array(), nullptr, leaf.layout});
      continue;
    }
    trace.meet(*Buffer::of(inputs[leaf.input].tensor), leaf.value);
  }
}

void push_words(
    OpenTrace& trace, const CapturedGraph& captured, const std::vector<GraphInput>& inputs) {
  for (const CapturedGraph::Word& word : captured.words) {
    switch (word.kind) {
      case CapturedGraph::Word::Kind::Constant: trace.dynamic.push_back(word.value); break;
      case CapturedGraph::Word::Kind::Input:
        trace.dynamic.push_back(inputs[word.value].bits);
        break;
      case CapturedGraph::Word::Kind::Draw: {
        at::Generator generator = default_generator(trace.device);
        const RandomDraw state = draw(generator, word.value);
        trace.dynamic.push_back(state.seed);
        trace.dynamic.push_back(state.offset);
      }
    }
  }
}

void make_outputs(
    OpenTrace& trace,
    const CapturedGraph& captured,
    const std::vector<GraphInput>& inputs,
    std::vector<GraphOutput>& outputs) {
  c10::SmallVector<c10::Storage, 16> storages;
  for (const CapturedGraph::Made& made : captured.made) {
    storages.push_back(make_storage(made.nbytes, made.layout, trace.device));
    if (made.value >= 0) {
      trace.make(*Buffer::of(storages.back()), made.value);
    }
  }
  for (const CapturedGraph::Output& spec : captured.outputs) {
    GraphOutput& output = outputs.emplace_back();
    switch (spec.kind) {
      case CapturedGraph::Output::Kind::Nothing: break;
      case CapturedGraph::Output::Kind::Number:
        output.kind = GraphOutput::Kind::Number;
        output.number = spec.offset;
        break;
      case CapturedGraph::Output::Kind::Input:
        output.kind = GraphOutput::Kind::Input;
        output.input = spec.index;
        break;
      case CapturedGraph::Output::Kind::OfInput:
        output.kind = GraphOutput::Kind::Tensor;
        output.tensor = seen_through(inputs[spec.index].tensor.storage(), spec);
        break;
      case CapturedGraph::Output::Kind::OfMade:
        output.kind = GraphOutput::Kind::Tensor;
        output.tensor = seen_through(storages[spec.index], spec);
    }
  }
}

} // namespace

bool key_of_inputs(
    OpenTrace& trace,
    const std::vector<GraphInput>& inputs,
    TraceCutter& cutter,
    std::vector<uint64_t>& key) {
  // Like the encoder of calls, but the trace does not meet them yet: some 15 ns an input.
  for (size_t at = 0; at < inputs.size(); ++at) {
    const GraphInput& input = inputs[at];
    switch (input.kind) {
      case GraphInput::Kind::Nothing: key.push_back(kNoInput); continue;
      case GraphInput::Kind::Number:
        key.push_back(kNumberInput);
        key.push_back(input.bits);
        continue;
      case GraphInput::Kind::Host: {
        const c10::ScalarType dtype = input.tensor.scalar_type();
        const bool wrapped = input.tensor.unsafeGetTensorImpl()->is_wrapped_number();
        key.push_back(
            kHostInput | static_cast<uint64_t>(dtype) << 8 | static_cast<uint64_t>(wrapped) << 16);
        if (dtype == c10::ScalarType::Bool) {
          key.push_back(input.bits); // no number that may vary
        }
        continue;
      }
      case GraphInput::Kind::Device: break;
    }
    auto* impl = input.tensor.unsafeGetTensorImpl();
    Buffer* buffer = Buffer::of(input.tensor);
    if (buffer == nullptr || impl->is_conj() || impl->is_neg()) {
      return false;
    }
    const bool known = finds(trace, *buffer, cutter);
    if (buffer->poison) {
      TORCH_CHECK(false, *buffer->poison);
    }
    uint64_t place = known ? static_cast<uint64_t>(buffer->value) : kStranger;
    for (size_t before = 0; !known && before < at; ++before) {
      if (inputs[before].kind == GraphInput::Kind::Device &&
          Buffer::of(inputs[before].tensor) == buffer) {
        place = kStranger - 1 - before; // the same memory as an earlier input's
        break;
      }
    }
    const auto sizes = impl->sizes();
    const auto strides = impl->strides();
    key.push_back(
        kDeviceInput | static_cast<uint64_t>(input.tensor.scalar_type()) << 8 |
        static_cast<uint64_t>(sizes.size()) << 16 |
        static_cast<uint64_t>(known || buffer->array.defined()) << 25 | place << 32);
    key.push_back(buffer->layout | static_cast<uint64_t>(buffer->nbytes) << 32);
    key.push_back(static_cast<uint64_t>(impl->storage_offset()));
    key.insert(key.end(), sizes.begin(), sizes.end());
    key.insert(key.end(), strides.begin(), strides.end());
  }
  return true;
}

void replay_graph(
    OpenTrace& trace,
    const CapturedGraph& captured,
    const std::vector<GraphInput>& inputs,
    std::vector<GraphOutput>& outputs) {
  meet_leaves(trace, captured, inputs);
  for (const CapturedGraph::Written& write : captured.written) {
    trace.write(*Buffer::of(inputs[write.input].tensor), write.value, write.layout);
  }
  push_words(trace, captured, inputs);
  make_outputs(trace, captured, inputs, outputs);
}

} // namespace fuse
