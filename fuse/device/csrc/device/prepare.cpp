#include "device/prepare.h"

#include <ATen/core/List.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/to.h>
#include <ATen/ops/unbind.h>

#include <algorithm>

#include "device/buffer.h"

namespace fuse {

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

// `device` is the index of the device of the arguments before this one, -1 if they have none.
Need need_of(const at::Tensor& tensor, bool host_index_allowed, int& device) {
  if (!tensor.defined()) {
    return Need::Nothing;
  }
  if (tensor.is_privateuseone()) {
    const int own = tensor.device().index();
    TORCH_CHECK(
        device < 0 || device == own,
        "Expected all tensors to be on the same device, but found at least two devices, tpu:",
        device,
        " and tpu:",
        own,
        "!");
    device = own;
    return tensor.is_conj() || tensor.is_neg() ? Need::Resolve : Need::Nothing;
  }
  TORCH_CHECK(
      tensor.is_cpu() && (tensor.dim() == 0 || host_index_allowed),
      "Expected all tensors to be on the same device, but found at least two devices, tpu:",
      std::max(device, 0),
      " and ",
      tensor.device(),
      "!");
  return host_index_allowed ? Need::Move : Need::Nothing;
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
    const bool mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
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
    const bool mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
    if (!mask) {
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

c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_privateuseone()) {
      return value.toTensor().device();
    }
  }
  return c10::Device(c10::DeviceType::PrivateUse1, 0);
}

void prepare(const OpInfo& info, torch::jit::Stack* stack) {
  const size_t count = info.kinds.size();
  auto arguments = torch::jit::last(*stack, count);
  const bool indices = info.indexes;
  int device = -1;
  for (size_t at = 0; at < count; ++at) {
    c10::IValue& value = (*stack)[stack->size() - count + at];
    if (value.isTensor()) {
      Need need = need_of(value.toTensor(), indices && at > 0, device);
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
        Need need = need_of(element.toTensor(), indices, device);
        if (need != Need::Nothing) {
          value.toList().set(item, prepared(element.toTensor(), need, device_of(arguments)));
        }
      }
    }
  }
}

} // namespace fuse
