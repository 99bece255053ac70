#include "tracing/operand_summary.h"

#include "runtime/device_index.h"
#include "tracing/streams.h"

namespace fuse {

void OperandSummary::see(const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) {
    return;
  }
  elements_ += tensor.numel();
  for (int64_t size : tensor.sizes()) {
    hash_ = (hash_ ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15ull;
  }
  const at::ScalarType dtype = tensor.scalar_type();
  hash_ ^= hash_ >> 29 ^ static_cast<uint64_t>(dtype);
  dense_floats_ =
      dense_floats_ && (dtype == at::kFloat || dtype == at::kDouble) && tensor.is_contiguous();
  if (!tensor.is_privateuseone()) {
    plain_ = plain_ && tensor.is_cpu() && tensor.dim() == 0 && !written;
    return;
  }
  const Buffer* buffer = Buffer::of(tensor);
  plain_ = plain_ && (device_ < 0 || device_ == buffer->device) && !tensor.is_conj() &&
      !tensor.is_neg() && !buffer->pending && !buffer->poison && buffer->array.defined();
  device_ = buffer->device;
  if (written && plain_) {
    see_written(*buffer);
  }
}

void OperandSummary::see_written(const Buffer& buffer) {
  const ArrayHandle& array = *buffer.array;
  const OpenTrace* here = Streams::here_if_any();
  plain_ = buffer.array.use_count() == 1 && buffer.traces.load(std::memory_order_acquire) == 0 &&
      array.writable_host() && array.host().storage().nbytes() >= buffer.nbytes &&
      here != nullptr && here->capture == nullptr;
}

void OperandSummary::see(const c10::List<std::optional<at::Tensor>>& tensors, bool) {
  for (const std::optional<at::Tensor> tensor : tensors) {
    see(tensor);
  }
}

void OperandSummary::see(std::optional<c10::Device> device, bool) {
  if (!device.has_value()) {
    return;
  }
  const c10::DeviceIndex index = index_or_current(*device);
  plain_ = plain_ && device->is_privateuseone() && (device_ < 0 ? index == 0 : device_ == index);
  device_ = static_cast<int8_t>(index);
}

} // namespace fuse
