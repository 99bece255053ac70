// The metadata of a call's results, from PyTorch's meta kernels.
#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/strides.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <optional>

#include "recorder/cpu_layouts.h"
#include "recorder/recorder.h"
#include "recorder/tensors_in.h"

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
bool resizes_in_place(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments,
    const torch::jit::Stack& after) {
  for (size_t at = 0; at < arguments.size(); ++at) {
    if (!info.written[at] || !arguments[at].isTensor() || !arguments[at].toTensor().defined()) {
      continue;
    }
    const at::Tensor& target = arguments[at].toTensor();
    bool in_place = !op.schema().arguments()[at].kwarg_only();
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

} // namespace

Inferences::Key Recorder::inference_key() const {
  // The call without value numbers, its numbers, and beside its views what infer_writes()
  // and resizes_in_place() look at: each operand's buffer, and which operands are one tensor.
  constexpr uint64_t kWithoutValue = UINT32_MAX;
  Inferences::Key key(call_.words.begin(), call_.words.end());
  for (size_t at = 0; at < call_.operands.size(); ++at) {
    const Operand& operand = call_.operands[at];
    key[operand.word] &= kWithoutValue;
    size_t same = 0;
    while (!call_.operands[same].tensor->is_same(*operand.tensor)) {
      ++same;
    }
    key.push_back(same);
    key.push_back(operand.buffer->layout);
    key.push_back(operand.buffer->nbytes);
  }
  for (const ScalarBits& scalar : call_.scalars) {
    key.push_back(scalar.bits);
    key.push_back(static_cast<uint64_t>(scalar.kind));
  }
  return key;
}

bool Recorder::infer(
    TrieNode& node,
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments) {
  refusal_.clear();
  Inferences::Key key = inference_key();
  if (const Inferred* known = inferences_.find(key)) {
    node.tensors = known->tensors;
    node.writes = known->writes;
    node.resizes = known->resizes;
    node.results = known->results;
  } else if (infer_anew(node, op, info, arguments)) {
    inferences_.add(std::move(key), {node.tensors, node.writes, node.resizes, node.results});
  } else {
    return false;
  }
  for (const NewTensor& made : node.tensors) {
    node.nbytes += made.nbytes;
  }
  for (const Resize& resize : node.resizes) {
    for (const Write& write : node.writes) {
      node.nbytes += write.operand == resize.operand ? bytes_in(write.layout) : 0;
    }
  }
  return true;
}

bool Recorder::run_on_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  try {
    c10::impl::ExcludeDispatchKeyGuard below_autograd(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    // The computed dispatch table, so that PyTorch's composite kernels count as well.
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
    return true;
  } catch (python_error& error) {
    // A meta kernel in Python failed; an interrupt that met it there is the user's.
    GilGuard gil;
    error.restore();
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
      throw_python_error();
    }
    PyErr_Clear();
    refusal_ = error.what();
  } catch (pybind11::error_already_set& error) { // the same, from where PyTorch calls by pybind11
    GilGuard gil;
    refusal_ = error.what();
    if (!error.matches(PyExc_Exception)) {
      error.restore();
      throw_python_error();
    }
  } catch (const std::exception& error) {
    refusal_ = error.what();
  }
  // Either PyTorch refuses the call or it cannot infer its result without data. The host
  // kernel decides: it raises PyTorch's own error, or runs as a counted fallback.
  refusal_ = "no shape inference: " + refusal_.substr(0, refusal_.find('\n'));
  return false;
}

bool Recorder::infer_anew(
    TrieNode& node,
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments) {
  torch::jit::Stack stack;
  for (const c10::IValue& value : arguments) {
    stack.push_back(to_meta(value));
  }
  const torch::jit::Stack meta_arguments = stack;
  if (!run_on_meta(op, stack)) {
    return false;
  }
  lay_out_as_on_cpu(info, meta_arguments, stack);
  for (size_t at = 0; at < info.returns.size(); ++at) {
    const auto result = result_of(stack[at], info.returns[at].alias, at == 0, node.tensors);
    if (!result.has_value()) {
      refusal_ = "its result is a Python number";
      return false;
    }
    node.results.push_back(*result);
  }
  if (resizes_in_place(op, info, arguments, meta_arguments)) {
    refusal_ = "it would resize a tensor that it writes in place";
    return false; // the host's kernel raises PyTorch's error
  }
  infer_writes(node, op, info, arguments, meta_arguments);
  return true;
}

void Recorder::infer_writes(
    TrieNode& node,
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments,
    const torch::jit::Stack& meta) {
  // Operand numbers count every device tensor of the call in order, as encode() met them.
  uint32_t operand = 0;
  auto visit = [&](const at::Tensor& tensor, const at::Tensor& after, bool written) {
    if (tensor.defined() && tensor.is_privateuseone()) {
      if (written && after.sizes() != tensor.sizes()) {
        const bool empty = tensor.numel() == 0;
        const size_t before = node.writes.size();
        infer_resize(node, operand, resized_as_on_cpu(op, info, after, empty, before, meta));
      } else if (written) {
        const Buffer& buffer = *call_.operands[operand].buffer;
        node.writes.push_back({operand, layout_after_write(tensor, buffer)});
      }
      ++operand;
      return;
    }
    TORCH_CHECK(
        !written || !tensor.defined(),
        "Expected all tensors to be on the same device, but found at least two devices, tpu:0 "
        "and ",
        tensor.defined() ? tensor.device() : c10::Device(c10::kCPU),
        "!");
  };
  for (size_t at = 0; at < arguments.size(); ++at) {
    const c10::IValue& value = arguments[at];
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

void Recorder::infer_resize(TrieNode& node, uint32_t operand, const at::Tensor& after) const {
  const NewTensor resized = spec_of(after);
  node.resizes.push_back(
      {operand,
       {resized.sizes.begin(), resized.sizes.end()},
       {resized.strides.begin(), resized.strides.end()}});
  const Operand& target = call_.operands[operand];
  node.writes.push_back({operand, layout_after_resize(*target.tensor, *target.buffer, resized)});
}

} // namespace fuse
