// Kernels with a meaning of their own: factories, views, resizing, copies, host reads.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include "device/copier.h"
#include "device/device.h"
#include "device/prepare.h"
#include "device/python_bridge.h"
#include "recorder/recorder.h"
#include "uncompiled/fresh_copy.h"
#include "uncompiled/host_values.h"

namespace fuse {

namespace {

c10::DeviceIndex index_of(std::optional<c10::Device> device) {
  if (device.has_value() && device->index() >= 0) {
    const c10::DeviceIndex index = own_index(device->index());
    TORCH_CHECK(
        index < c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->deviceCount(),
        "invalid tpu device index ",
        static_cast<int>(device->index()),
        ": there are ",
        static_cast<int>(
            c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->deviceCount()),
        " devices, numbered from 0");
    return index;
  }
  return current_device();
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
      "the tpu device has dense (strided) tensors only, not layout ",
      layout.value_or(c10::Layout::Strided),
      "; call .to_dense() first or keep the tensor on the CPU");
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
  c10::SmallVector<int64_t, 6> strides(sizes.size());
  switch (format.value_or(c10::MemoryFormat::Contiguous)) {
    case c10::MemoryFormat::ChannelsLast: strides = c10::get_channels_last_strides_2d(sizes); break;
    case c10::MemoryFormat::ChannelsLast3d:
      strides = c10::get_channels_last_strides_3d(sizes);
      break;
    default: strides = c10::contiguous_strides(sizes);
  }
  return new_tensor(sizes, strides, type, index_of(device));
}

at::Tensor empty_strided(
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool>) {
  check_dense(layout);
  const auto type = dtype.value_or(c10::typeMetaToScalarType(c10::get_default_dtype()));
  return new_tensor(sizes, strides, type, index_of(device));
}

// ---- copies ---------------------------------------------------------------------------

// Gives `target`, which covers its whole storage, the value of a CPU tensor of its sizes.
void put(const at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  check_process();
  Buffer* buffer = Buffer::of(target);
  // In memory order, so that the array is row-major whatever the tensor's strides are; a copy,
  // for the caller may change `source` afterwards.
  at::Tensor ordered = at::empty_strided(
      target.sizes(), target.strides(), source.options().dtype(target.scalar_type()));
  Array value = Copier::global().copy(std::move(ordered), source, non_blocking);
  c10::SmallVector<int64_t, 6> shape;
  physical_shape(target.sizes(), target.strides(), shape);
  const uint32_t layout = LayoutTable::global().intern(target.scalar_type(), shape);
  Recorder::global().assign(buffer, std::move(value), layout);
}

void copy_device_to_device(const at::Tensor& self, const at::Tensor& source) {
  if (self.device() != source.device()) {
    self.copy_(source.cpu());
    return;
  }
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  static const OpInfo& info = OpInfo::of(op);
  if (copied_uncompiled(info, self, source)) {
    return;
  }
  torch::jit::Stack stack{self, resolved(source), false};
  Recorder::global().record(op, info, &stack);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) {
    return self;
  }
  const bool expands = source.sizes() != self.sizes();
  if (expands && source.device() == self.device()) {
    at::assert_no_partial_overlap(self, source); // of the source as given, as PyTorch does
  }
  const at::Tensor expanded = expands ? source.expand(self.sizes()) : source;
  if (self.is_conj() || self.is_neg()) {
    // The memory holds the conjugate (or negative): write that.
    at::Tensor plain = self.is_conj() ? self.conj() : at::_neg_view(self);
    at::Tensor value = expanded.to(self.device(), self.scalar_type());
    plain.copy_(self.is_conj() ? at::conj_physical(value.resolve_conj()) : value.neg());
    return self;
  }
  if (self.is_privateuseone() && source.is_privateuseone()) {
    copy_device_to_device(self, expanded);
  } else if (self.is_privateuseone()) {
    TORCH_CHECK(source.is_cpu(), "cannot copy from device ", source.device(), " to the tpu device");
    if (covers_storage(self)) {
      put(self, resolved(expanded), non_blocking);
    } else {
      at::Tensor staged = empty_strided(
          self.sizes(),
          c10::contiguous_strides(self.sizes()),
          self.scalar_type(),
          {},
          self.device(),
          {});
      put(staged, resolved(expanded), non_blocking);
      copy_device_to_device(self, staged);
    }
  } else {
    TORCH_CHECK(self.is_cpu(), "cannot copy from the tpu device to device ", self.device());
    self.copy_(host_tensor(resolved(expanded)));
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  at::Tensor self = target;
  return copy_(self, source, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  at::Tensor self = target;
  if (self.sizes() != source.sizes()) {
    self.resize_(source.sizes());
  }
  return copy_(self, source, false);
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  return at::_local_scalar_dense(host_tensor(resolved(self)));
}

// ---- results whose size is data: count on the device, one host read, then a fixed shape -----

// Row-major positions of the non-zero elements, as a vector of `count` numbers: every element
// is sent to its rank among the non-zero ones, the others to one place past the end.
at::Tensor positions(const at::Tensor& flat, int64_t count) {
  const auto options = flat.options().dtype(at::kLong);
  at::Tensor rank = at::cumsum(flat, 0, at::kLong).sub(1);
  at::Tensor target = at::where(flat, rank, at::scalar_tensor(count, options));
  at::Tensor found = at::zeros({count + 1}, options);
  return found.scatter(0, target, at::arange(flat.numel(), options)).narrow(0, 0, count);
}

at::Tensor find_nonzero(const at::Tensor& self) {
  at::Tensor flat = self.ne(0).reshape(-1);
  const int64_t count = flat.sum().item().toLong();
  at::Tensor at_flat = positions(flat, count);
  std::vector<at::Tensor> columns;
  int64_t stride = self.numel();
  for (int64_t size : self.sizes()) {
    stride = size == 0 ? 0 : stride / size;
    columns.push_back(size == 0 ? at_flat : at_flat.floor_divide(stride).remainder(size));
  }
  // Transposed, as the CPU returns it.
  return columns.empty() ? at_flat.new_zeros({count, 0}) : at::stack(columns, 0).t();
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(
      out.scalar_type() == at::kLong,
      "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
      out.scalar_type());
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::Tensor found = find_nonzero(self);
  out.resize_(found.sizes());
  return out.copy_(found);
}

at::Tensor select_masked(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(
      self.device() == mask.device() || mask.dim() == 0 || self.dim() == 0,
      "Expected self and mask to be on the same device, but got mask on ",
      mask.device(),
      " and self on ",
      self.device());
  const auto sizes = at::infer_size(self.sizes(), mask.sizes());
  const auto device = self.is_privateuseone() ? self.device() : mask.device();
  at::Tensor where = find_nonzero(mask.to(device).expand(sizes).reshape(-1)).squeeze(1);
  return self.to(device).expand(sizes).reshape(-1).index_select(0, where);
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(
      self.scalar_type() == out.scalar_type(),
      "masked_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  at::Tensor found = select_masked(self, mask);
  out.resize_(found.sizes());
  return out.copy_(found);
}

bool are_equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(
      self.device() == other.device(),
      "Expected all tensors to be on the same device, but found at least two devices, ",
      self.device(),
      " and ",
      other.device(),
      "!");
  return self.sizes() == other.sizes() && self.eq(other).all().item().toBool();
}

// ---- views: PyTorch's own kernels work on any storage of its true byte size --------------

at::Tensor as_strided(
    const at::Tensor& self,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}
at::Tensor view(const at::Tensor& self, c10::IntArrayRef sizes) {
  return at::native::view(self, sizes);
}
at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}
at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}
at::Tensor view_as_real(const at::Tensor& self) {
  return at::native::view_as_real(self);
}
at::Tensor view_as_complex(const at::Tensor& self) {
  return at::native::view_as_complex(self);
}

// A view of nothing, as on the CPU, where there is nothing to shuffle.
at::Tensor channel_shuffle(const at::Tensor& self, int64_t groups) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::channel_shuffle", "");
  static const OpInfo& info = OpInfo::of(op);
  if (self.numel() == 0) {
    return self.alias();
  }
  torch::jit::Stack stack{self, groups};
  Recorder::global().record(op, info, &stack);
  return stack[0].toTensor();
}

// One queue: memory is never used on another stream than it was made on, so nothing has to be told.
void record_stream(at::Tensor&, c10::Stream) {}

// ---- attention: which kernel PyTorch calls for scaled_dot_product_attention ------------------

// Whether the tensor is one of PyTorch's DTensors, which wrap the device's.
bool is_dtensor(const at::Tensor& tensor) {
  if (!tensor.key_set().has(c10::DispatchKey::Python)) {
    return false;
  }
  const GilGuard gil;
  PyObject* modules = PyImport_GetModuleDict(); // borrowed; of nobody who has not imported it
  PyObject* module = PyDict_GetItemString(modules, "torch.distributed.tensor");
  if (module == nullptr) {
    return false;
  }
  const PyRef type = PyRef::steal(checked(PyObject_GetAttrString(module, "DTensor")));
  const PyRef wrapped = PyRef::steal(checked(THPVariable_Wrap(tensor)));
  const int found = PyObject_IsInstance(wrapped.get(), type.get());
  if (found < 0) {
    throw_python_error();
  }
  return found != 0;
}

// One recorded operation where its rule covers the call, PyTorch's decomposition elsewhere. DTensor
// has rules for the operators of CUDA's kernels alone: composites/attention.py is one of those.
int64_t choose_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool,
    std::optional<double>,
    bool grouped) {
  const bool plain = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && dropout == 0.0 &&
      query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type() &&
      query.numel() > 0 && key.numel() > 0 && value.numel() > 0 && query.size(0) == key.size(0) &&
      query.size(0) == value.size(0) && key.size(1) == value.size(1) &&
      (query.size(1) == key.size(1) || (grouped && query.size(1) % key.size(1) == 0)) &&
      (!mask.has_value() || !mask->requires_grad());
  if (!plain) {
    return static_cast<int64_t>(sdp::SDPBackend::math);
  }
  if (!is_dtensor(query)) {
    return static_cast<int64_t>(sdp::SDPBackend::overrideable);
  }
  // DTensor would share out grouped heads as if there were as many keys as queries.
  return static_cast<int64_t>(
      query.size(1) == key.size(1) ? sdp::SDPBackend::efficient_attention : sdp::SDPBackend::math);
}

// ---- everything else ---------------------------------------------------------------------

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Recorder::global().record(op, OpInfo::of(op), stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("nonzero", &find_nonzero);
  m.impl("nonzero.out", &nonzero_out);
  m.impl("masked_select", &select_masked);
  m.impl("masked_select.out", &masked_select_out);
  m.impl("equal", &are_equal);
  m.impl("_fused_sdp_choice", &choose_attention);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &unfold);
  m.impl("channel_shuffle", &channel_shuffle);
  m.impl("view_as_real", &view_as_real);
  m.impl("view_as_complex", &view_as_complex);
  m.impl("record_stream", &record_stream);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

} // namespace

} // namespace fuse

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &fuse::choose_attention)
} // namespace at::native
