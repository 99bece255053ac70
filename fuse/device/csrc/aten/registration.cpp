// Which kernel the device has for an operator: one that knows the operator's C++ type, else the
// boxed recorder, else PyTorch's own composite.
#include "aten/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/library.h>

#include "cpu_exec/boxed_call.h"
#include "cpu_exec/host_call.h"
#include "cpu_exec/typed_kernel.h"
#include "runtime/process.h"
#include "tracing/prepare.h"
#include "tracing/recorder.h"
#include "tracing/segment_tiers.h"

namespace fuse {

namespace {

class BoxedKernel final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const OpInfo* info = info_.load(std::memory_order_acquire);
    if (info == nullptr) {
      info = &OpInfo::of(op); // the same pointer whichever thread is first
      info_.store(info, std::memory_order_release);
    }
    call_boxed(op, *info, stack);
  }

 private:
  std::atomic<const OpInfo*> info_{nullptr};
};

// The same of an operator that is composed of others where it does not run whole.
class BoxedComposite final : public c10::OperatorKernel {
 public:
  explicit BoxedComposite(const OpInfo& info) : info_(info) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (!runs_whole(op, stack)) {
      op.redispatchBoxed(c10::DispatchKeySet(kComposed), stack);
    }
  }

 private:
  bool runs_whole(const c10::OperatorHandle& op, torch::jit::Stack* stack) const {
    if (!SegmentTiers::runs_uncompiled()) {
      return false;
    }
    check_process();
    prepare(info_, stack);
    const BoxedCall call{op, info_, torch::jit::last(*stack, info_.kinds.size())};
    return Recorder::global().continues_uncompiled(call, /*whole=*/true) &&
        run_on_host(op, info_, stack, HostRun::Uncompiled);
  }

  const OpInfo& info_;
};

// Makes one the device's kernel of an operator, for as long as the process lives.
void register_kernel(const c10::OperatorHandle& op, c10::KernelFunction kernel) {
  static auto* registered = new std::vector<c10::RegistrationHandleRAII>;
  registered->push_back(
      c10::Dispatcher::singleton().registerImpl(
          op.operator_name(),
          c10::DispatchKey::PrivateUse1,
          std::move(kernel),
          std::nullopt,
          nullptr,
          "registered by the tpu device"));
}

bool is_composed(const c10::OperatorHandle& op) {
  return op.hasComputedKernelForDispatchKey(kComposed);
}

// Whether PyTorch's CPU may be given the operator whole: it is neither a view nor random, and makes
// or overwrites dense tensors, whose metadata it leaves alone.
bool may_run_typed(const c10::OperatorHandle& op) {
  const auto is_view = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && !argument.alias_info()->isWrite();
  };
  const auto& schema = op.schema();
  const OpInfo& info = OpInfo::of(op);
  return op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) &&
      !op.hasTag(at::Tag::nondeterministic_seeded) && !op.hasTag(at::Tag::inplace_view) &&
      info.draws == OpInfo::Draws::No && info.generator < 0 &&
      std::none_of(schema.arguments().begin(), schema.arguments().end(), is_view) &&
      std::none_of(
             schema.arguments().begin(),
             schema.arguments().end(),
             [](const c10::Argument& argument) { return argument.is_out(); });
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  call_boxed(op, OpInfo::of(op), stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Makes memory only, or hands it on: for the device to do.
bool is_memory(const std::string& name) {
  return name.rfind("empty", 0) == 0 || name.rfind("new_empty", 0) == 0 ||
      name.rfind("resize", 0) == 0 || name.rfind("_unsafe_view", 0) == 0 ||
      name.rfind("unsafe_", 0) == 0 || name == "lift" || name == "_pin_memory";
}

} // namespace

void register_record_kernels(
    const std::vector<std::string>& names, const std::vector<std::string>& others) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const std::unordered_set<std::string> recorded(names.begin(), names.end());
  const std::unordered_set<std::string> elsewhere(others.begin(), others.end());
  for (const c10::OperatorName& full : dispatcher.getAllOpNames()) {
    if (full.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const auto op = dispatcher.findSchema(full);
    if (!op.has_value() || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      continue;
    }
    const std::string& name = OpInfo::of(*op).name;
    const bool records = recorded.count(name) != 0;
    if (!records &&
        (elsewhere.count(name) != 0 || is_memory(name) ||
         op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))) {
      continue;
    }
    const Otherwise otherwise =
        !records && is_composed(*op) ? Otherwise::Compose : Otherwise::Record;
    std::optional<c10::KernelFunction> kernel;
    if (may_run_typed(*op)) {
      kernel = special_kernel(*op, otherwise);
      kernel = kernel.has_value() ? std::move(kernel) : typed_kernel(*op, otherwise);
    }
    if (kernel.has_value()) {
      register_kernel(*op, *std::move(kernel));
    } else if (records) {
      register_kernel(
          *op, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>()));
    }
  }
}

void register_whole_kernels(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const size_t dot = name.find('.');
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
        ("aten::" + name.substr(0, dot)).c_str(),
        dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
    register_kernel(
        op,
        c10::KernelFunction::makeFromBoxedFunctor(
            std::make_unique<BoxedComposite>(OpInfo::of(op))));
  }
}

std::vector<std::string> overloads_of(const std::string& key) {
  const std::string aten = "aten::";
  const c10::DispatchKey wanted = c10::parseDispatchKey(key);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<std::string> found;
  for (const c10::OperatorName& full : dispatcher.getAllOpNames()) {
    if (full.name.rfind(aten, 0) != 0) {
      continue;
    }
    const auto op = dispatcher.findSchema(full);
    if (op.has_value() && op->hasKernelForDispatchKey(wanted)) {
      found.push_back(
          full.name.substr(aten.size()) +
          (full.overload_name.empty() ? "" : "." + full.overload_name));
    }
  }
  return found;
}

} // namespace fuse
