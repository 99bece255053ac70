// Factories: new tensors of the device.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "runtime/buffer.h"
#include "runtime/device_index.h"
#include "runtime/memory.h"
#include "runtime/process.h"

namespace fuse {

namespace {

c10::DeviceIndex index_of(std::optional<c10::Device> device) {
  const c10::DeviceIndex index = device.has_value() ? index_or_current(*device) : current_device();
  const auto count = c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->deviceCount();
  TORCH_CHECK(
      index < count,
      "invalid tpu device index ",
      static_cast<int>(index),
      ": there are ",
      static_cast<int>(count),
      " devices, numbered from 0");
  return index;
}

// torch.use_deterministic_algorithms: new memory reads as NaN, or as the largest integer.
at::Tensor filled_if_deterministic(at::Tensor tensor) {
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
      [[unlikely]] {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor new_tensor(
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    c10::ScalarType dtype,
    c10::DeviceIndex device) {
  check_process();
  const size_t nbytes =
      at::detail::computeStorageNbytes(sizes, strides, c10::scalarTypeToTypeMeta(dtype).itemsize());
  check_room(nbytes, "aten::empty");
  c10::SmallVector<int64_t, 6> shape;
  uint32_t layout = 0;
  if (physical_shape(sizes, strides, shape)) {
    layout = LayoutTable::global().intern(dtype, shape);
  } else {
    const auto elements =
        static_cast<int64_t>(nbytes / c10::scalarTypeToTypeMeta(dtype).itemsize());
    layout = LayoutTable::global().intern(dtype, elements);
  }
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      make_storage(nbytes, layout, static_cast<int8_t>(device)),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

void check_dense(std::optional<c10::Layout> layout) {
  TORCH_CHECK(
      !layout.has_value() || *layout == c10::Layout::Strided,
      "the tpu device has no tensors of layout ",
      layout.value_or(c10::Layout::Strided),
      "; call .to_dense() first or keep the tensor on the CPU");
}

// PyTorch's own warning, of every device's factories.
void warn_of_complex_half(c10::ScalarType type) {
  if (type == c10::kComplexHalf) {
    TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
  }
}

at::Tensor empty(
    c10::IntArrayRef sizes,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool>,
    std::optional<c10::MemoryFormat> format) {
  check_dense(layout);
  for (int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
  }
  const auto type = dtype.value_or(c10::typeMetaToScalarType(c10::get_default_dtype()));
  warn_of_complex_half(type);
  c10::SmallVector<int64_t, 6> strides(sizes.size());
  switch (format.value_or(c10::MemoryFormat::Contiguous)) {
    case c10::MemoryFormat::ChannelsLast: strides = c10::get_channels_last_strides_2d(sizes); break;
    case c10::MemoryFormat::ChannelsLast3d:
      strides = c10::get_channels_last_strides_3d(sizes);
      break;
    default: strides = c10::contiguous_strides(sizes);
  }
  return filled_if_deterministic(new_tensor(sizes, strides, type, index_of(device)));
}

at::Tensor empty_strided(
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool>) {
  check_dense(layout);
  at::check_size_nonnegative(sizes);
  const auto type = dtype.value_or(c10::typeMetaToScalarType(c10::get_default_dtype()));
  warn_of_complex_half(type);
  return filled_if_deterministic(new_tensor(sizes, strides, type, index_of(device)));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
}

} // namespace

} // namespace fuse
