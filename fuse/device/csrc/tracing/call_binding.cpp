#include "tracing/call_binding.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "runtime/generator.h"
#include "tracing/cpu_warnings.h"
#include "tracing/stream_graph.h"

namespace fuse {

namespace {

at::Tensor make_tensor(OpenTrace& trace, const NewTensor& spec) {
  c10::Storage storage = make_storage(spec.nbytes, spec.layout, trace.device);
  trace.make(*Buffer::of(storage), trace.next_value());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(spec.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides);
  return tensor;
}

void draw_random(OpenTrace& trace, const TrieNode& node, c10::ArrayRef<c10::IValue> arguments) {
  const c10::IValue* chosen = nullptr;
  for (const c10::IValue& value : arguments) {
    if (value.isGenerator()) {
      chosen = &value;
    }
  }
  at::Generator generator =
      chosen != nullptr ? chosen->toGenerator() : default_generator(trace.device);
  if (generator.unsafeGetGeneratorImpl() !=
      default_generator(trace.device).unsafeGetGeneratorImpl()) {
    trace.break_capture_here("it draws from a generator of its own");
  }
  if (trace.graph != nullptr) {
    note_draw(trace, generator, node.random_blocks);
    return;
  }
  auto state = draw(generator, node.random_blocks);
  trace.dynamic.push_back(state.seed);
  trace.dynamic.push_back(state.offset);
}

} // namespace

void bind_call(
    OpenTrace& trace,
    const TrieNode& node,
    const CallKey& key,
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  auto arguments = torch::jit::last(*stack, count);
  for (size_t at = 0; at < node.scalars.size(); ++at) {
    if (node.scalars[at].dynamic) {
      trace.dynamic.push_back(key.scalars[at].bits);
    }
  }
  if (node.op->bounds) [[unlikely]] {
    warn_of_bounds(arguments);
  }
  if (node.random_blocks != 0) {
    draw_random(trace, node, arguments);
  }
  for (const Resize& resize : node.resizes) {
    const at::Tensor& target = *key.operands[resize.operand].tensor;
    warn_of_resize(*node.op, target, resize.sizes);
    resize_contiguous(target, resize.sizes);
    target.unsafeGetTensorImpl()->set_sizes_and_strides(resize.sizes, resize.strides);
  }
  c10::SmallVector<at::Tensor, 4> tensors;
  for (const NewTensor& spec : node.tensors) {
    tensors.push_back(make_tensor(trace, spec));
  }
  for (const Write& write : node.writes) {
    trace.write(*key.operands[write.operand].buffer, trace.next_value(), write.layout);
  }
  c10::SmallVector<c10::IValue, 4> results;
  for (const Result& result : node.results) {
    switch (result.kind) {
      case Result::Kind::Argument:
        results.push_back(arguments[static_cast<size_t>(result.index)]);
        break;
      case Result::Kind::Constant: results.push_back(result.constant); break;
      case Result::Kind::Undefined: results.emplace_back(at::Tensor()); break;
      case Result::Kind::New:
        results.emplace_back(std::move(tensors[static_cast<size_t>(result.index)]));
        break;
      case Result::Kind::List: {
        c10::List<at::Tensor> list;
        for (int item = 0; item < result.count; ++item) {
          list.push_back(
              std::move(tensors[static_cast<size_t>(result.index) + static_cast<size_t>(item)]));
        }
        results.emplace_back(std::move(list));
        break;
      }
    }
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : results) {
    stack->push_back(std::move(result));
  }
}

} // namespace fuse
