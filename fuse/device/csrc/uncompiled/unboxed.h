// Calls that run uncompiled without being boxed.
//
// A small call on PyTorch's CPU kernels takes one to two microseconds, and as a boxed one half as
// much again: its arguments go through a list of tagged values twice, and the dispatcher looks for
// the kernel by the operator. A kernel that knows its operator's C++ types calls it directly.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <tuple>
#include <utility>

#include "device/buffer.h"
#include "flush_subnormals.h"
#include "one_thread.h"
#include "recorder/op_info.h"
#include "recorder/recorder.h"
#include "uncompiled/host_values.h"
#include "uncompiled/unboxed_operands.h"

namespace fuse {

// One call on the CPU's kernels, as they are to run here, for as long as it lives.
class UnboxedCall {
 public:
  UnboxedCall(const UnboxedOperands& operands, HostRun run)
      : device_(operands.device()),
        ragged_(false && run == HostRun::Uncompiled),
        one_thread_(operands.elements() <= kSmallCall),
        flush_(operands.elements() <= kSmallCall) {}

  // A CPU tensor over the same memory, not to be written; other arguments as they are.
  static at::Tensor on_host(const at::Tensor& tensor) {
    return tensor.is_privateuseone() ? operand_on_host(tensor) : tensor;
  }
  static std::optional<at::Tensor> on_host(const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() && tensor->defined() ? std::make_optional(on_host(*tensor)) : tensor;
  }
  class List {
   public:
    explicit List(const at::ITensorListRef& tensors) {
      for (const at::Tensor& tensor : tensors) {
        tensors_.push_back(on_host(tensor));
      }
    }
    operator at::ITensorListRef() const { // NOLINT: what a kernel takes
      return at::TensorList(tensors_);
    }

   private:
    c10::SmallVector<at::Tensor, 4> tensors_;
  };
  static List on_host(const at::ITensorListRef& tensors) {
    return List(tensors);
  }
  template <typename Other>
  static const Other& on_host(const Other& other) {
    return other;
  }

  // What the kernel made, in memory of its own.
  at::Tensor on_device(at::Tensor result) const {
    return from_host(std::move(result), device_, ragged_);
  }
  template <typename... Results>
  std::tuple<Results...> on_device(std::tuple<Results...> results) const {
    return std::apply(
        [this](Results&... each) { return std::make_tuple(on_device(std::move(each))...); },
        results);
  }

 private:
  int8_t device_;
  bool ragged_;
  OneThread one_thread_;
  FlushSubnormals flush_;
};

// The device's kernel of an operator, given PyTorch's for the CPU: runs that where the call runs
// uncompiled, else records.
template <typename Operator, auto kernel, typename Schema = typename Operator::schema>
struct Unboxed;

template <typename Operator, auto kernel, typename Result, typename... Arguments>
struct Unboxed<Operator, kernel, Result(Arguments...)> {
  static Result call(Arguments... arguments) {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Operator::name, Operator::overload_name);
    static const OpInfo& info = OpInfo::of(op);
    UnboxedOperands operands;
    (operands.see(arguments), ...);
    Recorder& recorder = Recorder::global();
    if (const auto run = recorder.runs_unboxed(info, operands)) {
      try {
        const UnboxedCall call(operands, *run);
        return call.on_device(kernel(call.on_host(arguments)...));
      } catch (const c10::Error& error) {
        if (!is_kernels_limit(error)) {
          throw;
        }
      }
    }
    torch::jit::Stack stack = c10::impl::boxArgs<Arguments...>(arguments...);
    recorder.record(op, info, &stack);
    return c10::impl::PopResult<Result>::call(stack);
  }
};

} // namespace fuse
