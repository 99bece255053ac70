#include "tracing/prepare.h"

#include <ATen/core/List.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/to.h>
#include <ATen/ops/unbind.h>

#include <algorithm>

#include "runtime/buffer.h"
#include "runtime/device_index.h"

namespace fuse {

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

at::Tensor resolved(const at::Tensor& tensor) {
  // Tensor::resolve_conj() would copy, and the copy would come back here.
  at::Tensor result = tensor;
  if (result.is_neg()) {
    result = at::_neg_view(result).neg();
  }
  return result.is_conj() ? at::conj_physical(result.conj()) : result;
}

namespace {

// What has to happen to an argument before the call can be recorded.
enum class Need : uint8_t { Nothing, Move, Resolve };

c10::Device tpu(int index) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

// `device` is the index of the device of the arguments before this one, -1 if they have none.
Need need_of(const at::Tensor& tensor, bool written, bool host_index_allowed, int& device) {
  if (!tensor.defined()) {
    return Need::Nothing;
  }
  if (tensor.is_privateuseone()) {
    const int own = tensor.device().index();
    if (device >= 0 && device != own) {
      refuse_devices(tpu(device), tensor.device());
    }
    device = own;
    return tensor.is_conj() || tensor.is_neg() ? Need::Resolve : Need::Nothing;
  }
  // A number on the host is an operand of any device; what is written has to be of this one.
  if (!tensor.is_cpu() || written || (tensor.dim() != 0 && !host_index_allowed)) {
    refuse_devices(tpu(std::max(device, 0)), tensor.device());
  }
  return host_index_allowed ? Need::Move : Need::Nothing;
}

// PyTorch's own error for indices that lie elsewhere than what they index.
void check_places(const at::Tensor& self, const c10::IValue& indices) {
  for (const c10::IValue& item : indices.toListRef()) {
    TORCH_CHECK(
        !item.isTensor() || !item.toTensor().defined() || item.toTensor().is_cpu() ||
            item.toTensor().device() == self.device(),
        "indices should be either on ",
        at::kCPU,
        " or on the same device as the indexed tensor (",
        self.device(),
        ")");
  }
}

// PyTorch's own error for a mask that does not fit what it indexes.
void check_masks(const at::Tensor& self, const c10::IValue& indices) {
  int64_t dim = 0;
  for (const c10::IValue& item : indices.toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) {
      ++dim;
      continue;
    }
    const at::Tensor& index = item.toTensor();
    const bool mask = is_mask(index);
    if (index.scalar_type() == at::kByte) {
      TORCH_WARN(
          "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
          "instead.");
    }
    for (int64_t at = 0; mask && at < index.dim(); ++at) {
      TORCH_CHECK_INDEX(
          dim + at < self.dim() && index.size(at) == self.size(dim + at),
          "The shape of the mask ",
          index.sizes(),
          " at index ",
          at,
          " does not match the shape of the indexed tensor ",
          self.sizes(),
          " at index ",
          dim + at);
    }
    dim += mask ? index.dim() : 1;
  }
}

// A mask selects by position: the one index tensor becomes one for each of its dimensions.
// How many positions there are is data: one host read.
void expand_masks(c10::IValue& value) {
  bool any = false;
  c10::List<std::optional<at::Tensor>> expanded;
  for (const c10::IValue& item : value.toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) {
      expanded.push_back(std::nullopt);
      continue;
    }
    const at::Tensor& index = item.toTensor();
    if (!is_mask(index)) {
      expanded.push_back(index);
      continue;
    }
    any = true;
    for (const at::Tensor& part : index.nonzero().unbind(1)) {
      expanded.push_back(part);
    }
  }
  if (any) {
    value = std::move(expanded);
  }
}

at::Tensor prepared(const at::Tensor& tensor, Need need, c10::Device device) {
  switch (need) {
    case Need::Move: return tensor.to(device);
    case Need::Resolve: return resolved(tensor);
    default: return tensor;
  }
}

} // namespace

bool writes_unresolved(const OpInfo& info, const torch::jit::Stack& stack) {
  const size_t first = stack.size() - info.kinds.size();
  for (size_t at = 0; at < info.kinds.size(); ++at) {
    if (info.written[at] && stack[first + at].isTensor()) {
      const at::Tensor& tensor = stack[first + at].toTensor();
      if (tensor.defined() && (tensor.is_conj() || tensor.is_neg())) {
        return true;
      }
    }
  }
  return false;
}

void call_on_resolved(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  std::vector<std::pair<at::Tensor, at::Tensor>> written; // as given, and its copy
  const size_t first = stack->size() - info.kinds.size();
  for (size_t at = 0; at < info.kinds.size(); ++at) {
    c10::IValue& value = (*stack)[first + at];
    if (info.written[at] && value.isTensor() && value.toTensor().defined()) {
      written.emplace_back(value.toTensor(), resolved(value.toTensor()));
      value = written.back().second;
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
  at::AutoDispatchBelowADInplaceOrView no_autograd; // the call's own has been recorded
  for (auto& [given, copy] : written) {
    if (given.is_same(copy)) {
      continue; // it had nothing lazy
    }
    if (given.sizes() != copy.sizes()) {
      given.resize_(copy.sizes());
    }
    given.copy_(copy);
  }
  for (size_t at = stack->size() - info.returns.size(); at < stack->size(); ++at) {
    for (const auto& [given, copy] : written) {
      if ((*stack)[at].isTensor() && (*stack)[at].toTensor().is_same(copy)) {
        (*stack)[at] = given;
      }
    }
  }
}

c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  const auto is_ours = [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().is_privateuseone();
  };
  for (const c10::IValue& value : arguments) {
    if (is_ours(value)) {
      return value.toTensor().device();
    }
    if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) {
        if (is_ours(item)) {
          return item.toTensor().device();
        }
      }
    } else if (value.isDevice() && value.toDevice().is_privateuseone()) {
      return {c10::DeviceType::PrivateUse1, index_or_current(value.toDevice())};
    }
  }
  return {c10::DeviceType::PrivateUse1, current_device()};
}

void prepare(const OpInfo& info, torch::jit::Stack* stack) {
  const size_t count = info.kinds.size();
  auto arguments = torch::jit::last(*stack, count);
  const bool indices = info.indexes;
  if (indices && count > 1 && arguments[1].isList()) {
    check_places(arguments[0].toTensor(), arguments[1]);
  }
  int device = -1;
  for (size_t at = 0; at < count; ++at) {
    c10::IValue& value = (*stack)[stack->size() - count + at];
    if (value.isTensor()) {
      Need need = need_of(value.toTensor(), info.written[at], indices && at > 0, device);
      if (need != Need::Nothing) {
        value = prepared(value.toTensor(), need, device_of(arguments));
      }
    } else if (value.isList() && !value.isIntList()) {
      if (indices) {
        check_masks((*stack)[stack->size() - count].toTensor(), value);
        expand_masks(value);
      }
      for (size_t item = 0; item < value.toListRef().size(); ++item) {
        const c10::IValue& element = value.toListRef()[item];
        if (!element.isTensor()) {
          continue;
        }
        Need need = need_of(element.toTensor(), info.written[at], indices, device);
        if (need != Need::Nothing) {
          value.toList().set(item, prepared(element.toTensor(), need, device_of(arguments)));
        }
      }
    }
  }
}

} // namespace fuse
