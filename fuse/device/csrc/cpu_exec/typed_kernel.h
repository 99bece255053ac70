// Typed CPU kernels: calls that run uncompiled without being boxed.
//
// A small call on PyTorch's CPU kernels takes one to two microseconds, and as a boxed one half as
// much again: its arguments go through a list of tagged values twice. A kernel that knows its
// operator's C++ type hands them on as they are. One template serves all operators of a type.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <flush_subnormals.h>
#include <one_thread.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu_exec/boxed_call.h"
#include "cpu_exec/host_values.h"
#include "runtime/buffer.h"
#include "tracing/op_info.h"
#include "tracing/operand_summary.h"
#include "tracing/recorder.h"

namespace fuse {

// One call on the CPU's kernels, as they are to run here, for as long as it lives.
class CpuCall {
 public:
  explicit CpuCall(const OperandSummary& operands)
      : device_(operands.device()),
        one_thread_(operands.elements() <= kSmallCall),
        flush_(operands.elements() <= kSmallCall) {}

  // A CPU tensor over the same memory.
  static at::Tensor on_host(const at::Tensor& tensor) {
    return tensor.is_privateuseone() ? operand_on_host(tensor) : tensor;
  }
  // What is written, as kernels take it.
  class Written {
   public:
    explicit Written(const at::Tensor& tensor) : tensor_(on_host(tensor)) {}
    operator at::Tensor&() { // NOLINT(google-explicit-constructor)
      return tensor_;
    }

   private:
    at::Tensor tensor_;
  };
  static Written on_host(at::Tensor& tensor) {
    return Written(tensor);
  }
  static std::optional<at::Tensor> on_host(const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() && tensor->defined() ? std::make_optional(on_host(*tensor)) : tensor;
  }
  class List {
   public:
    template <typename Tensors>
    explicit List(const Tensors& tensors) {
      for (const at::Tensor& tensor : tensors) {
        tensors_.push_back(on_host(tensor));
      }
    }
    operator at::ITensorListRef() const { // NOLINT(google-explicit-constructor)
      return at::TensorList(tensors_);
    }
    operator at::TensorList() const { // NOLINT(google-explicit-constructor)
      return tensors_;
    }

   private:
    c10::SmallVector<at::Tensor, 4> tensors_;
  };
  static List on_host(const at::ITensorListRef& tensors) {
    return List(tensors);
  }
  static List on_host(at::TensorList tensors) {
    return List(tensors);
  }
  static c10::List<std::optional<at::Tensor>> on_host(
      const c10::List<std::optional<at::Tensor>>& tensors);
  // Only the device's own come here.
  static std::optional<c10::Device> on_host(std::optional<c10::Device> device) {
    return device.has_value() ? std::make_optional<c10::Device>(c10::DeviceType::CPU) : device;
  }
  template <typename Other>
  static const Other& on_host(const Other& other) {
    return other;
  }

  // What the kernel made; a copy where it is an operand's memory.
  at::Tensor on_device(at::Tensor result) const;
  std::vector<at::Tensor> on_device(std::vector<at::Tensor> results) const {
    for (at::Tensor& result : results) {
      result = on_device(std::move(result));
    }
    return results;
  }
  template <typename... Results>
  std::tuple<Results...> on_device(std::tuple<Results...> results) const {
    return std::apply(
        [this](Results&... each) { return std::make_tuple(on_device(std::move(each))...); },
        results);
  }
  template <typename Other>
  std::enable_if_t<std::is_arithmetic_v<Other>, Other> on_device(Other number) const {
    return number;
  }

 private:
  int8_t device_;
  OneThread one_thread_;
  FlushSubnormals flush_;
};

// How an operator's kernel of the device goes on where a call does not run uncompiled.
enum class Otherwise : uint8_t { Record, Compose };

// The key under which an operator has the kernel that Otherwise::Compose says: PyTorch's own, of
// other operators, or one of ours. Its device is nobody's.
constexpr c10::DispatchKey kComposed = c10::DispatchKey::PrivateUse3;

// What the device's kernel of an operator knows of it, whatever its type.
class TypedOperator : public c10::OperatorKernel {
 protected:
  TypedOperator(const c10::OperatorHandle& op, Otherwise otherwise);

  // A list that has been written: its tensors' versions count, which the kernels of PyTorch's for
  // the CPU leave to the operators they are made of.
  template <typename Argument>
  void bump_versions(const Argument& argument, size_t at) const {
    if constexpr (std::is_same_v<Argument, at::TensorList>) {
      if (writes(at)) {
        for (const at::Tensor& tensor : argument) {
          tensor.unsafeGetTensorImpl()->bump_version();
        }
      }
    }
  }
  bool writes(size_t at) const {
    return (written_ >> at & 1) != 0;
  }
  // Whether TorchScript is tracing.
  static bool is_traced();

  const OpInfo& info_;
  Otherwise otherwise_;
  bool is_shown_composed_; // TorchScript traces what the operator is made of, and not itself

 private:
  uint64_t written_ = 0; // a bit an argument
};

// The device's kernel of an operator of this type: runs PyTorch's for the CPU where the call runs
// uncompiled, else records, or composes it of others.
template <typename Schema>
class TypedKernel;

template <typename Result, typename... Arguments>
class TypedKernel<Result(Arguments...)> final : public TypedOperator {
 public:
  using Kernel = Result(Arguments...);

  // `kernel` in place of the one that the dispatcher has for the CPU, if any.
  TypedKernel(
      const c10::TypedOperatorHandle<Kernel>& op, Otherwise otherwise, Kernel* kernel = nullptr)
      : TypedOperator(op, otherwise), op_(op), kernel_(kernel) {}

  Result operator()(Arguments... arguments) {
    return call(std::index_sequence_for<Arguments...>(), arguments...);
  }

 private:
  template <size_t... at>
  Result call(std::index_sequence<at...>, Arguments&... arguments) {
    if (is_shown_composed_ && is_traced()) [[unlikely]] {
      return composed(arguments...);
    }
    OperandSummary operands;
    (operands.see(arguments, writes(at)), ...);
    if ((!info_.steps || operands.dense_floats()) &&
        Recorder::global().continues_uncompiled(info_, operands)) {
      try {
        const CpuCall call(operands);
        if constexpr (std::is_void_v<Result>) {
          on_host(call.on_host(arguments)...);
          (bump_versions(arguments, at), ...);
          return;
        } else if constexpr (std::is_same_v<Result, at::Tensor&>) {
          on_host(call.on_host(arguments)...);
          return written(arguments...);
        } else {
          return call.on_device(on_host(call.on_host(arguments)...));
        }
      } catch (const c10::Error& error) {
        if (!is_kernels_limit(error)) {
          throw;
        }
      }
    }
    return record(arguments...);
  }

  template <typename... Hosts>
  Result on_host(Hosts&&... hosts) {
    if (kernel_ != nullptr) {
      return kernel_(std::forward<Hosts>(hosts)...);
    }
    return op_.redispatch(
        c10::DispatchKeySet(c10::DispatchKey::CPU), std::forward<Hosts>(hosts)...);
  }

  Result record(Arguments&... arguments) {
    if (otherwise_ == Otherwise::Compose) {
      return composed(arguments...);
    }
    torch::jit::Stack stack = c10::impl::boxArgs<Arguments...>(arguments...);
    call_boxed(op_, info_, &stack);
    if constexpr (std::is_same_v<Result, at::Tensor&>) {
      return written(arguments...);
    } else if constexpr (!std::is_void_v<Result>) {
      return c10::impl::PopResult<Result>::call(stack);
    }
  }

  Result composed(Arguments&... arguments) {
    return op_.redispatch(c10::DispatchKeySet(kComposed), std::forward<Arguments>(arguments)...);
  }

  // The one that is written and returned.
  template <typename First, typename... Rest>
  static at::Tensor& written(First& first, Rest&... rest) {
    if constexpr (std::is_same_v<First, at::Tensor>) {
      return first;
    } else {
      return written(rest...);
    }
  }

  c10::TypedOperatorHandle<Kernel> op_;
  Kernel* kernel_;
};

// The device's kernel of an operator of the named C++ type; none where it is of another.
template <typename Schema>
std::optional<c10::KernelFunction> typed_kernel(
    const c10::OperatorHandle& op, Otherwise otherwise, Schema* kernel = nullptr) {
  try {
    return c10::KernelFunction::makeFromUnboxedFunctor</*AllowLegacyTypes=*/false,
                                                       TypedKernel<Schema>>(
        std::make_unique<TypedKernel<Schema>>(op.typed<Schema>(), otherwise, kernel));
  } catch (const c10::Error&) { // as texts their types are equal
    return std::nullopt;
  }
}

// The same of whichever type it is; none for operators of a rare one, which stay boxed.
std::optional<c10::KernelFunction> typed_kernel(const c10::OperatorHandle& op, Otherwise otherwise);

// The same of those few that another kernel than PyTorch's runs uncompiled; none for others.
std::optional<c10::KernelFunction> special_kernel(
    const c10::OperatorHandle& op, Otherwise otherwise);

} // namespace fuse
