// How many elements a mask selects is data: as positions it costs a host read, which cuts the
// trace, and a shape that changes with the data. A value that is the same wherever the mask is
// true needs neither.
#include "tracing/masked_put.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <optional>

#include "tracing/prepare.h"

namespace fuse {

namespace {

struct Mask {
  at::Tensor tensor;
  int64_t first = 0; // the first dimension that it selects from
};

// The one mask among indices that are otherwise whole dimensions.
std::optional<Mask> only_mask(const c10::IValue& indices, const at::Tensor& self) {
  Mask found;
  for (const c10::IValue& item : indices.toListRef()) {
    const bool defined = item.isTensor() && item.toTensor().defined();
    if (defined && (found.tensor.defined() || !is_mask(item.toTensor()))) {
      return std::nullopt;
    }
    if (defined) {
      found.tensor = item.toTensor();
    }
    found.first += !defined && !found.tensor.defined();
  }
  const int64_t dims = found.tensor.defined() ? found.tensor.dim() : 0;
  const bool fits = dims > 0 && found.tensor.device() == self.device() &&
      found.first + dims <= self.dim() &&
      found.tensor.sizes() == self.sizes().slice(found.first, dims);
  return fits ? std::optional(found) : std::nullopt;
}

// The value with a dimension for each of the mask's in place of the one that counts the selected,
// where that is of size one or missing.
std::optional<at::Tensor> spread(const at::Tensor& value, const Mask& mask, int64_t dims) {
  const int64_t selected = dims - mask.tensor.dim() + 1; // dimensions of the selection
  const int64_t at = mask.first - (selected - value.dim());
  if (value.dim() > selected || (at >= 0 && value.size(at) != 1)) {
    return std::nullopt;
  }
  c10::DimVector shape(value.sizes().begin(), value.sizes().end());
  if (at >= 0) {
    shape.insert(shape.begin() + at, static_cast<size_t>(mask.tensor.dim() - 1), 1);
  }
  return value.reshape(shape);
}

bool are_apart(const at::Tensor& self, const at::Tensor& other) {
  return !other.storage().is_alias_of(self.storage());
}

} // namespace

bool put_by_mask(const OpInfo& info, torch::jit::Stack* stack) {
  const bool in_place = info.name == "index_put_" || info.name == "_index_put_impl_";
  if (!in_place && info.name != "index_put") {
    return false;
  }
  auto arguments = torch::jit::last(*stack, info.kinds.size());
  const at::Tensor self = arguments[0].toTensor();
  at::Tensor value = arguments[2].toTensor();
  const std::optional<Mask> mask = only_mask(arguments[1], self);
  const bool at_hand = value.device() == self.device() || (value.is_cpu() && value.dim() == 0);
  if (!mask || arguments[3].toBool() || !at_hand ||
      at::has_internal_overlap(self) == at::MemOverlap::Yes || !are_apart(self, mask->tensor) ||
      !are_apart(self, value)) {
    return false;
  }
  if (mask->tensor.scalar_type() == at::kByte) {
    // Positions are found of it; but a number is filled in, which takes none but booleans.
    TORCH_CHECK(
        value.numel() != 1,
        "masked_fill_ only supports boolean masks, but got mask with dtype ",
        mask->tensor.dtype());
    return false;
  }
  if (value.numel() == 1 && (self.is_complex() || !value.is_complex())) {
    value = value.reshape({}).to(self.scalar_type()); // as PyTorch's CPU takes it for a number
  }
  if (value.scalar_type() != self.scalar_type()) {
    return false;
  }
  const std::optional<at::Tensor> spread_value = spread(value, *mask, self.dim());
  if (!spread_value || !at::is_expandable_to(spread_value->sizes(), self.sizes())) {
    return false;
  }
  c10::DimVector shape(mask->tensor.sizes().begin(), mask->tensor.sizes().end());
  shape.resize(static_cast<size_t>(self.dim() - mask->first), 1);
  at::Tensor made = at::where(mask->tensor.reshape(shape), *spread_value, self);
  torch::jit::drop(*stack, info.kinds.size());
  stack->emplace_back((in_place ? self : self.clone()).copy_(made));
  return true;
}

} // namespace fuse
