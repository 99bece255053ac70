#include "tracing/shape_inference.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/strides.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <optional>

#include "runtime/device_index.h"
#include "runtime/python_bridge.h"
#include "runtime/signal_hold.h"
#include "tracing/cpu_layouts.h"
#include "tracing/cpu_warnings.h"
#include "tracing/structured_meta.h"
#include "tracing/tensors_in.h"

namespace fuse {

namespace {

at::Tensor to_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) {
    return tensor;
  }
  return at::Tensor(
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
}

c10::IValue to_meta(const c10::IValue& value) {
  if (value.isDevice()) {
    return c10::Device(c10::DeviceType::Meta);
  }
  if (value.isGenerator()) {
    return {};
  }
  return map_tensors(value, [](const at::Tensor& tensor) { return to_meta(tensor); });
}

NewTensor spec_of(const at::Tensor& meta) {
  NewTensor spec;
  spec.dtype = meta.scalar_type();
  spec.sizes.assign(meta.sizes().begin(), meta.sizes().end());
  c10::SmallVector<int64_t, 6> shape;
  if (physical_shape(meta.sizes(), meta.strides(), shape)) {
    spec.strides.assign(meta.strides().begin(), meta.strides().end());
  } else {
    // Overlapping or gapped results have no place in a dense array: row-major instead.
    auto strides = c10::contiguous_strides(meta.sizes());
    spec.strides.assign(strides.begin(), strides.end());
    shape.assign(meta.sizes().begin(), meta.sizes().end());
  }
  spec.nbytes = static_cast<size_t>(meta.numel()) * meta.itemsize();
  spec.layout = LayoutTable::global().intern(spec.dtype, shape);
  return spec;
}

// `layout_after_write` where out= gives `tensor` other sizes, perhaps inside a larger storage.
uint32_t layout_after_resize(
    const at::Tensor& tensor, const Buffer& buffer, const NewTensor& resized) {
  const size_t start = static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
  if (start == 0 && resized.nbytes >= buffer.nbytes) {
    c10::SmallVector<int64_t, 6> shape;
    physical_shape(resized.sizes, resized.strides, shape);
    return LayoutTable::global().intern(tensor.scalar_type(), shape);
  }
  return layout_of_part(
      buffer, tensor.scalar_type(), std::max(buffer.nbytes, start + resized.nbytes));
}

// Meta kernels that are laxer than the CPU's give an in-place operator a larger result.
bool resizes_in_place(const BoxedCall& call, const torch::jit::Stack& after) {
  const c10::ArrayRef<c10::IValue> arguments = call.arguments;
  for (size_t at = 0; at < arguments.size(); ++at) {
    if (!call.info.written[at] || !arguments[at].isTensor() ||
        !arguments[at].toTensor().defined()) {
      continue;
    }
    const at::Tensor& target = arguments[at].toTensor();
    bool in_place = !call.op.schema().arguments()[at].kwarg_only();
    for (size_t other = 0; other < at; ++other) { // out= may be an input too
      in_place |= arguments[other].isTensor() && arguments[other].toTensor().is_same(target);
    }
    if (in_place && target.sizes() != after[at].toTensor().sizes()) {
      return true;
    }
  }
  return false;
}

// The result, with its tensors appended to `tensors`; nothing where it is a Python number.
std::optional<Result> result_of(
    const c10::IValue& value, int alias, bool first, std::vector<NewTensor>& tensors) {
  Result result;
  result.index = static_cast<int>(tensors.size());
  if (alias >= 0) {
    result.kind = Result::Kind::Argument;
    result.index = alias;
  } else if (value.isTensorList()) {
    result.kind = Result::Kind::List;
    for (const at::Tensor& item : value.toTensorVector()) {
      tensors.push_back(spec_of(item));
    }
    result.count = static_cast<int>(tensors.size()) - result.index;
  } else if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) {
    result.kind = Result::Kind::Undefined;
    result.index = 0;
  } else if (value.isTensor()) {
    tensors.push_back(spec_of(value.toTensor()));
  } else if (!first && value.isInt()) {
    result.kind = Result::Kind::Constant; // beside tensors: a size, not data
    result.index = 0;
    result.constant = value;
  } else {
    return std::nullopt;
  }
  return result;
}

// What PyTorch's inference in Python would import when first called. Under the recorder's lock.
void prepare_inference() {
  static bool prepared = false;
  if (!prepared) {
    const GilGuard gil;
    call_engine("prepare_inference", pack());
    prepared = true;
  }
}

Refusal run_on_meta(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack) {
  const c10::KernelFunction* const structured = structured_meta(info.name);
  // An interrupt in Python's would leave its imports half done, or be taken for a refusal.
  const SignalHold hold(structured == nullptr);
  if (structured == nullptr) {
    prepare_inference();
  }
  std::string why;
  try {
    c10::impl::ExcludeDispatchKeyGuard below_autograd(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    const DroppedWarnings resized(kResized);
    const DroppedWarnings resized_by_arange(kResizedByArange);
    const c10::DispatchKeySet meta(c10::DispatchKey::Meta);
    if (structured != nullptr) {
      structured->callBoxed(op, meta, &stack);
    } else {
      // The computed dispatch table, so that PyTorch's composite kernels count as well.
      op.redispatchBoxed(meta, &stack);
    }
    return std::nullopt;
  } catch (python_error& error) {
    // A meta kernel in Python failed; an interrupt that met it there is the user's.
    GilGuard gil;
    clear_failure(error);
    why = error.what();
  } catch (pybind11::error_already_set& error) { // the same, from where PyTorch calls by pybind11
    GilGuard gil;
    why = error.what();
    if (!error.matches(PyExc_Exception)) {
      error.restore();
      throw_python_error();
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  // Either PyTorch refuses the call or it cannot infer its result without data. The host
  // kernel decides: it raises PyTorch's own error, or runs as a counted fallback.
  return "no shape inference: " + why.substr(0, why.find('\n'));
}

void infer_resize(
    TrieNode& node, const Operand& target, uint32_t operand, const at::Tensor& after) {
  const NewTensor resized = spec_of(after);
  node.resizes.push_back(
      {operand,
       {resized.sizes.begin(), resized.sizes.end()},
       {resized.strides.begin(), resized.strides.end()}});
  node.writes.push_back({operand, layout_after_resize(*target.tensor, *target.buffer, resized)});
}

// `meta` are the arguments on meta tensors, those of out= resized by inference.
void infer_writes(
    TrieNode& node, const CallKey& key, const BoxedCall& call, const torch::jit::Stack& meta) {
  // Operand numbers count every device tensor of the call in order, as the encoder met them.
  const OpInfo& info = call.info;
  uint32_t operand = 0;
  auto visit = [&](const at::Tensor& tensor, const at::Tensor& after, bool written) {
    if (tensor.defined() && tensor.is_privateuseone()) {
      if (written && after.sizes() != tensor.sizes()) {
        const bool empty = tensor.numel() == 0;
        const size_t before = node.writes.size();
        infer_resize(
            node,
            key.operands[operand],
            operand,
            resized_as_on_cpu(call.op, info, after, empty, before, meta));
      } else if (written) {
        const Buffer& buffer = *key.operands[operand].buffer;
        node.writes.push_back({operand, layout_after_write(tensor, buffer)});
      }
      ++operand;
      return;
    }
    if (written && tensor.defined()) {
      refuse_devices({c10::DeviceType::PrivateUse1, 0}, tensor.device());
    }
  };
  for (size_t at = 0; at < call.arguments.size(); ++at) {
    const c10::IValue& value = call.arguments[at];
    if (value.isTensor()) {
      visit(value.toTensor(), meta[at].toTensor(), info.written[at]);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (size_t item = 0; item < value.toListRef().size(); ++item) {
        const c10::IValue& element = value.toListRef()[item];
        if (element.isTensor()) {
          visit(element.toTensor(), meta[at].toListRef()[item].toTensor(), info.written[at]);
        }
      }
    }
  }
}

Refusal infer_anew(TrieNode& node, const CallKey& key, const BoxedCall& call) {
  torch::jit::Stack stack;
  for (const c10::IValue& value : call.arguments) {
    stack.push_back(to_meta(value));
  }
  const torch::jit::Stack meta_arguments = stack;
  if (Refusal refusal = run_on_meta(call.op, call.info, stack)) {
    return refusal;
  }
  size_as_on_cpu(call.info, meta_arguments, stack);
  for (size_t at = 0; at < call.info.returns.size(); ++at) {
    const auto result = result_of(stack[at], call.info.returns[at].alias, at == 0, node.tensors);
    if (!result.has_value()) {
      return "its result is a Python number";
    }
    node.results.push_back(*result);
  }
  if (resizes_in_place(call, meta_arguments)) {
    // The host's kernel raises PyTorch's error.
    return "it would resize a tensor that it writes in place";
  }
  infer_writes(node, key, call, meta_arguments);
  return std::nullopt;
}

} // namespace

Refusal ShapeInference::infer(TrieNode& node, const CallKey& key, const BoxedCall& call) {
  ShapeCache::Key known_by = key.for_inference();
  if (const Inferred* known = cache_.find(known_by)) {
    node.tensors = known->tensors;
    node.writes = known->writes;
    node.resizes = known->resizes;
    node.results = known->results;
  } else if (Refusal refusal = infer_anew(node, key, call)) {
    return refusal;
  } else {
    cache_.add(std::move(known_by), {node.tensors, node.writes, node.resizes, node.results});
  }
  for (const NewTensor& made : node.tensors) {
    node.nbytes += made.nbytes;
  }
  for (const Resize& resize : node.resizes) {
    for (const Write& write : node.writes) {
      node.nbytes += write.operand == resize.operand ? bytes_in(write.layout) : 0;
    }
  }
  return std::nullopt;
}

} // namespace fuse
