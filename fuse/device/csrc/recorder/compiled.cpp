// Recording a compiled graph in one step, where its calls are known.
#include "recorder/compiled.h"

#include <algorithm>

#include "device/generator.h"
#include "recorder/lock.h"
#include "recorder/recorder.h"

namespace fuse {

namespace {

enum InputTag : uint64_t { kNoInput = 1, kNumberInput, kHostInput, kDeviceInput };
constexpr uint64_t kStranger = UINT32_MAX; // the trace has not met it yet

at::Tensor seen_through(c10::Storage storage, const Stretch::Output& spec) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(spec.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides, spec.offset);
  return tensor;
}

} // namespace

bool Stretch::admits(const std::vector<GraphInput>& inputs) const {
  return std::all_of(places.begin(), places.end(), [&](const Place& place) {
    return place.node->scalars[place.scalar].admits(inputs[place.input].bits);
  });
}

uint64_t CompiledGraph::hash(const TrieNode* from, const std::vector<uint64_t>& key) {
  return hash_words(key) ^ reinterpret_cast<uint64_t>(from);
}

const Stretch* CompiledGraph::find(
    const TrieNode* from,
    const std::vector<uint64_t>& key,
    uint64_t epoch,
    const std::vector<GraphInput>& inputs) const {
  auto range = stretches_.equal_range(hash(from, key));
  for (auto it = range.first; it != range.second; ++it) {
    const Stretch& one = it->second;
    if (one.epoch == epoch && one.from == from && one.key == key && one.admits(inputs)) {
      return &one;
    }
  }
  return nullptr;
}

void CompiledGraph::add(Stretch stretch) {
  std::erase_if(stretches_, [&](const auto& one) { return one.second.epoch != stretch.epoch; });
  if (stretches_.size() >= kMost) {
    stretches_.clear();
  }
  const uint64_t at = hash(stretch.from, stretch.key);
  stretches_.emplace(at, std::move(stretch));
}

bool Recorder::meet_inputs(const std::vector<GraphInput>& inputs, std::vector<uint64_t>& key) {
  // Like encode(), but the trace does not meet them yet: some 15 ns an input.
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
    const bool known = finds(*buffer);
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

bool Recorder::prepare_graph(
    const CompiledGraph& graph, const std::vector<GraphInput>& inputs, std::vector<uint64_t>& key) {
  if (mode() == Mode::Debug || open_->capture != nullptr) {
    return false;
  }
  end_segment();
  policy_.leaves(open_->place);
  int8_t device = -1;
  for (const GraphInput& input : inputs) {
    if (input.kind == GraphInput::Kind::Device) {
      const int8_t own = input.tensor.device().index();
      if (device >= 0 && own != device) {
        return false;
      }
      device = own;
    }
  }
  device = std::max<int8_t>(device, 0);
  if (device != open_->device) {
    cut_locked(CutReason::DeviceChange);
    open_->device = device;
  }
  if (graph.alone() && !open_->joins && open_->operations != 0) {
    cut_locked(CutReason::Compiled);
  }
  if (!meet_inputs(inputs, key)) {
    return false;
  }
  open_->joins = open_->joins || !graph.alone();
  return true;
}

bool Recorder::replay(
    const CompiledGraph& graph,
    const std::vector<GraphInput>& inputs,
    std::vector<GraphOutput>& outputs) {
  Lock lock(*this);
  std::vector<uint64_t> key;
  key.reserve(inputs.size() * 8);
  if (!prepare_graph(graph, inputs, key)) {
    return false;
  }
  const Stretch* stretch = graph.find(open_->cursor, key, epoch_, inputs);
  if (stretch == nullptr) {
    return false;
  }
  meet_leaves(*stretch, inputs);
  for (const Stretch::Written& write : stretch->written) {
    Buffer* buffer = Buffer::of(inputs[write.input].tensor);
    overwrite_here(*buffer);
    if (open_->owner[static_cast<size_t>(buffer->value)] == buffer) {
      open_->owner[static_cast<size_t>(buffer->value)] = nullptr;
    }
    buffer->array.reset(); // a leaf's array lives on in the trace, for donation
    buffer->value = write.value;
    buffer->pending = true;
    buffer->layout = write.layout;
    open_->owner[static_cast<size_t>(write.value)] = buffer;
  }
  push_words(*stretch, inputs);
  make_outputs(*stretch, inputs, outputs);
  go_on(stretch->steps);
  return true;
}

void Recorder::meet_leaves(const Stretch& stretch, const std::vector<GraphInput>& inputs) {
  open_->owner.resize(static_cast<size_t>(stretch.values), nullptr);
  for (const Stretch::LeafOf& leaf : stretch.leaves) {
    if (leaf.input == Stretch::LeafOf::kNone) {
      open_->leaves.push_back({leaf.value, Array(), nullptr, leaf.layout});
      continue;
    }
    Buffer* buffer = Buffer::of(inputs[leaf.input].tensor);
    buffer->stream = open_;
    buffer->trace = open_->serial;
    buffer->value = leaf.value;
    buffer->held();
    buffer->leaf = static_cast<int32_t>(open_->leaves.size());
    open_->owner[static_cast<size_t>(leaf.value)] = buffer;
    open_->leaves.push_back({leaf.value, buffer->array, buffer, buffer->layout});
  }
}

void Recorder::push_words(const Stretch& stretch, const std::vector<GraphInput>& inputs) {
  for (const Stretch::Word& word : stretch.words) {
    switch (word.kind) {
      case Stretch::Word::Kind::Constant: open_->dynamic.push_back(word.value); break;
      case Stretch::Word::Kind::Input: open_->dynamic.push_back(inputs[word.value].bits); break;
      case Stretch::Word::Kind::Draw: {
        at::Generator generator = default_generator(open_->device);
        const RandomDraw state = draw(generator, word.value);
        open_->dynamic.push_back(state.seed);
        open_->dynamic.push_back(state.offset);
      }
    }
  }
}

void Recorder::make_outputs(
    const Stretch& stretch,
    const std::vector<GraphInput>& inputs,
    std::vector<GraphOutput>& outputs) {
  c10::SmallVector<c10::Storage, 16> storages;
  for (const Stretch::Made& made : stretch.made) {
    storages.push_back(make_storage(made.nbytes, made.layout, open_->device));
    if (made.value >= 0) {
      Buffer* buffer = Buffer::of(storages.back());
      buffer->stream = open_;
      buffer->trace = open_->serial;
      buffer->value = made.value;
      buffer->pending = true;
      buffer->held();
      open_->owner[static_cast<size_t>(made.value)] = buffer;
    }
  }
  for (const Stretch::Output& spec : stretch.outputs) {
    GraphOutput& output = outputs.emplace_back();
    switch (spec.kind) {
      case Stretch::Output::Kind::Nothing: break;
      case Stretch::Output::Kind::Number:
        output.kind = GraphOutput::Kind::Number;
        output.number = spec.offset;
        break;
      case Stretch::Output::Kind::Input:
        output.kind = GraphOutput::Kind::Input;
        output.input = spec.index;
        break;
      case Stretch::Output::Kind::OfInput:
        output.kind = GraphOutput::Kind::Tensor;
        output.tensor = seen_through(inputs[spec.index].tensor.storage(), spec);
        break;
      case Stretch::Output::Kind::OfMade:
        output.kind = GraphOutput::Kind::Tensor;
        output.tensor = seen_through(storages[spec.index], spec);
    }
  }
}

void Recorder::go_on(const std::vector<TrieNode*>& steps) {
  if (steps.empty()) {
    return;
  }
  open_->first = open_->operations == 0 ? steps.front() : open_->first;
  open_->cursor = steps.back();
  open_->cursor->last_used = open_->serial;
  open_->operations += steps.size();
  stats_.operations += steps.size();
  stats_.known += steps.size();
  if (open_->mark_at != 0 && open_->operations >= open_->mark_at) {
    open_->cursor->cut_after = true;
    open_->mark_at = 0;
  }
  if (mode() != Mode::Fused) {
    cut_locked(CutReason::EveryOperation);
  } else if (open_->cursor->cut_after) {
    cut_locked(CutReason::RepeatMark);
  } else if (open_->operations >= limit_) {
    learn_period();
    cut_locked(CutReason::SizeBound);
  } else {
    auto ahead = std::find_if(
        steps.rbegin(), steps.rend(), [](const TrieNode* step) { return step->ahead != nullptr; });
    if (ahead != steps.rend()) {
      start_ahead(**ahead);
    }
  }
}

} // namespace fuse
