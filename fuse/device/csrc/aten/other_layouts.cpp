// Quantised tensors and nested ones of the strided layout: the device has none, and says so where
// PyTorch would list all of its dispatch keys. Nested tensors of the jagged layout are subclasses
// over strided ones; sparse ones are in fuse/device/sparse.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

namespace fuse {

namespace {

[[noreturn]] void refuse(const c10::OperatorHandle& op, const char* kind, const char* remedy) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      op.schema().name(),
      ": the tpu device has no ",
      kind,
      " tensors; ",
      remedy,
      " or keep the tensor on the CPU");
}

void quantized(const c10::OperatorHandle& op, torch::jit::Stack*) {
  refuse(op, "quantized", "call .dequantize() first");
}

void nested(const c10::OperatorHandle& op, torch::jit::Stack*) {
  refuse(op, "nested", "make it with layout=torch.jagged");
}

using torch::CppFunction;

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(CppFunction::makeFromBoxedFunction<&quantized>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(CppFunction::makeFromBoxedFunction<&nested>());
}

// What would wrap the device's strided tensors into others.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name :
       {"quantize_per_tensor",
        "quantize_per_tensor.tensor_qparams",
        "quantize_per_tensor.tensors",
        "quantize_per_tensor_dynamic",
        "quantize_per_channel"}) {
    m.impl(name, CppFunction::makeFromBoxedFunction<&quantized>());
  }
  for (const char* name : {"_nested_view_from_buffer", "_nested_tensor_from_tensor_list"}) {
    m.impl(name, CppFunction::makeFromBoxedFunction<&nested>());
  }
}

} // namespace

} // namespace fuse
